#include "trainer/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

namespace tutti::trainer {
namespace {

CBLAS_TRANSPOSE blas(Form form) { return form == Form::plain ? CblasNoTrans : CblasTrans; }

template <class T>
Matrix<T> rows_from(Matrix<T> x, std::size_t first) {
  return {x.data + (x.form == Form::plain ? first * x.ld : first), x.ld, x.form};
}
template <class T>
Matrix<T> columns_from(Matrix<T> x, std::size_t first) {
  return {x.data + (x.form == Form::plain ? first : first * x.ld), x.ld, x.form};
}

constexpr std::size_t kTile = 16;                   // cuts fall on multiples of a vector
constexpr double kWorthSharing = 1 << 18;           // multiplications; below, waking a thread costs more than it brings

}  // namespace

template <class T>
void product(std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, std::size_t ldc) {
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, blas(a.form), blas(b.form), int(m), int(n), int(k), alpha, a.data, int(a.ld), b.data, int(b.ld), beta,
                c, int(ldc));
  } else {
    cblas_dgemm(CblasRowMajor, blas(a.form), blas(b.form), int(m), int(n), int(k), alpha, a.data, int(a.ld), b.data, int(b.ld), beta,
                c, int(ldc));
  }
}

template <class T>
void product(Threads& threads, std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
             std::size_t ldc) {
  const auto parts = std::size_t(threads.product_parts());
  if (parts == 1 || double(m) * double(n) * double(k) < kWorthSharing) return product(m, n, k, alpha, a, b, beta, c, ldc);
  const bool by_rows = m > n;
  const std::size_t length = by_rows ? m : n;
  const std::size_t piece = ((length + parts - 1) / parts + kTile - 1) / kTile * kTile;
  threads.each((length + piece - 1) / piece, [&](std::size_t part) {
    const std::size_t first = part * piece, count = std::min(piece, length - first);
    if (by_rows) product(count, n, k, alpha, rows_from(a, first), b, beta, c + first * ldc, ldc);
    else product(m, count, k, alpha, a, columns_from(b, first), beta, c + first, ldc);
  });
}

#define TUTTI_FOR(T)                                                                                                         \
  template void product(std::size_t, std::size_t, std::size_t, T, Matrix<T>, Matrix<T>, T, T*, std::size_t);               \
  template void product(Threads&, std::size_t, std::size_t, std::size_t, T, Matrix<T>, Matrix<T>, T, T*, std::size_t);
TUTTI_FOR(float)
TUTTI_FOR(double)
#undef TUTTI_FOR

#ifdef OPENBLAS_VERSION
void keep_blas_on_one_thread() { openblas_set_num_threads(1); }
std::string blas_name() { return std::string(openblas_get_config()) + " " + openblas_get_corename(); }
#else      // another BLAS: its own settings say how many threads it uses
void keep_blas_on_one_thread() {}
std::string blas_name() { return "BLAS"; }
#endif

}  // namespace tutti::trainer
