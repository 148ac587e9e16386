#pragma once
// Backend: who calculates. The functions of the layers (linear.h, norm.h, attention.h ...; what they mean stands there) on the memory of
// one device, so that a model is written once:
//   host_backend.h   this process's memory, loops over threads, products by BLAS
//   cuda/            a GPU's memory, kernels, products by cuBLASLt
#include <cstdint>

#include "trainer/activation.h"
#include "trainer/attention.h"
#include "trainer/device.h"
#include "trainer/embedding.h"
#include "trainer/gemm.h"
#include "trainer/norm.h"
#include "trainer/optimizer_step.h"
#include "trainer/rope.h"

namespace tutti::trainer {

template <class T>
class Backend : public Device {
 public:
  // The side of a square product that shows how fast it can multiply, within a fraction of a second.
  virtual std::size_t large_product() const = 0;
  virtual void product(std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, std::size_t ldc,
                       Precision precision) = 0;
  virtual void linear_forward(std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* b, T* y,
                              const T* onto, Precision precision) = 0;
  virtual void linear_backward(std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* dy, T* dx, T* d_w,
                               T* d_b, T beta, Precision precision) = 0;
  virtual void norm_forward(NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* bias, T* y, T* mean,
                            T* scale) = 0;
  virtual void norm_backward(NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* mean, const T* scale,
                             const T* dy, T* dx, T* d_weight, T* d_bias, T beta) = 0;
  virtual void activation_forward(ActivationKind kind, std::size_t rows, std::size_t width, const T* x, T* y) = 0;
  virtual void activation_backward(ActivationKind kind, std::size_t rows, std::size_t width, const T* x, const T* dy, T* dx) = 0;
  virtual void rope(Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, T* x, std::size_t stride) = 0;
  virtual void attention_forward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, T* out, T* log_sums) = 0;
  virtual void attention_backward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const T* out, const T* log_sums,
                                  const T* d_out, T* d_qkv) = 0;
  virtual void embedding_forward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* table,
                                 const T* positions, T* x) = 0;
  virtual void embedding_backward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* dx, T* d_table,
                                  T* d_positions, T beta) = 0;
  virtual void loss_forward(std::size_t rows, std::size_t vocabulary, const T* logits, const Token* targets, T* losses, T* log_sums) = 0;
  virtual void loss_backward(std::size_t rows, std::size_t vocabulary, const Token* targets, const T* log_sums, T scale, T* logits) = 0;
  virtual void drop(const Dropout& dropout, std::size_t samples, std::size_t length, T* x) = 0;
  virtual void add(std::size_t n, const T* x, T* y) = 0;                                // y += x

  // precision.h's; those in place of T = double do nothing.
  virtual void round(Precision precision, std::size_t n, T* x) = 0;                     // in place
  virtual void pack(Precision precision, std::size_t n, const T* x, std::uint16_t* out) = 0;
  virtual void unpack(Precision precision, std::size_t n, const std::uint16_t* x, T* out) = 0;

  // optimizer_step.h's.
  virtual void adamw(std::size_t n, const AdamWStep& step, const T* gradient, T* first, T* second, T* weights) = 0;
  virtual void sum_squares(std::size_t blocks, const T* x, double* squares) = 0;
};

}  // namespace tutti::trainer
