#pragma once
// Matrix products by BLAS. Matrices are row-major; `ld` is the distance between rows in elements.
#include <cstddef>
#include <string>

#include "trainer/precision.h"
#include "trainer/threads.h"

namespace tutti::trainer {

enum class Form : bool { plain, transposed };

template <class T>
struct Matrix {
  const T* data;
  std::size_t ld;
  Form form = Form::plain;
};

// c[m][n] = alpha a[m][k] b[k][n] + beta c, on the calling thread. A transposed `a` is stored as [k][m], `b` as [n][k].
// beta = 0 does not read c.
//
// `precision`: a and b are rounded to it, products and sums are f32. No BLAS of a CPU's that is common multiplies 16-bit floats, so
// blocks of both are rounded into f32 scratch and given to the same f32 product: the numbers of a 16-bit product with f32
// accumulation, not its speed. T = double ignores it.
template <class T>
void product(std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, std::size_t ldc,
             Precision precision = Precision::f32);

// The same on all threads, cut along the longer side of c.
template <class T>
void product(Threads& threads, std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
             std::size_t ldc, Precision precision = Precision::f32);

// To be called before the first product: BLAS keeps to the thread that calls it, since the cutting is done here.
void keep_blas_on_one_thread();
// What BLAS this is and which kernels it chose, e.g. "OpenBLAS 0.3.21 ... SkylakeX"; ranks that differ cannot agree on bits.
std::string blas_name();

}  // namespace tutti::trainer
