#pragma once
// The Backend of a processor: the layers' own functions, in this process's memory, on a rank's threads.
#include <tutti/memory.h>

#include "trainer/backend.h"
#include "trainer/failure.h"
#include "trainer/linear.h"

namespace tutti::trainer {

template <class T>
class HostBackend final : public Backend<T> {
 public:
  explicit HostBackend(Threads& threads) : threads_(threads) {}
  std::string describe() const override { return blas_name(); }
  void* allocate(std::size_t bytes) override;
  void release(void* at) override;
  void* allocate_shared(std::size_t bytes) override { return require(tutti::allocate(bytes)); }
  void release_shared(void* at) override { tutti::deallocate(at); }
  void upload(void* to, const void* host, std::size_t bytes) override { copy(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override { copy(host, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void clear(void* at, std::size_t bytes) override;

  std::size_t large_product() const override { return 512; }
  void product(std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, std::size_t ldc,
               Precision precision) override {
    trainer::product<T>(threads_, m, n, k, alpha, a, b, beta, c, ldc, precision);
  }
  void linear_forward(std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* b, T* y, const T* onto,
                      Precision precision) override {
    trainer::linear_forward(threads_, rows, inputs, outputs, x, w, b, y, onto, precision);
  }
  void linear_backward(std::size_t rows, std::size_t inputs, std::size_t outputs, const T* x, const T* w, const T* dy, T* dx, T* d_w, T* d_b,
                       T beta, Precision precision) override {
    trainer::linear_backward(threads_, rows, inputs, outputs, x, w, dy, dx, d_w, d_b, beta, precision);
  }
  void norm_forward(NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* bias, T* y, T* mean,
                    T* scale) override {
    trainer::norm_forward(threads_, kind, rows, width, x, weight, bias, y, mean, scale);
  }
  void norm_backward(NormKind kind, std::size_t rows, std::size_t width, const T* x, const T* weight, const T* mean, const T* scale,
                     const T* dy, T* dx, T* d_weight, T* d_bias, T beta) override {
    trainer::norm_backward(threads_, kind, rows, width, x, weight, mean, scale, dy, dx, d_weight, d_bias, beta);
  }
  void activation_forward(ActivationKind kind, std::size_t rows, std::size_t width, const T* x, T* y) override {
    trainer::activation_forward(threads_, kind, rows, width, x, y);
  }
  void activation_backward(ActivationKind kind, std::size_t rows, std::size_t width, const T* x, const T* dy, T* dx) override {
    trainer::activation_backward(threads_, kind, rows, width, x, dy, dx);
  }
  void rope(Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, T* x, std::size_t stride) override {
    trainer::rope(threads_, turn, rows, context, heads, size, x, stride);
  }
  void attention_forward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, T* out, T* log_sums) override {
    trainer::attention_forward(threads_, shape, dropout, qkv, out, log_sums);
  }
  void attention_backward(const AttentionShape& shape, const Dropout& dropout, const T* qkv, const T* out, const T* log_sums, const T* d_out,
                          T* d_qkv) override {
    trainer::attention_backward(threads_, shape, dropout, qkv, out, log_sums, d_out, d_qkv);
  }
  void embedding_forward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* table, const T* positions,
                         T* x) override {
    trainer::embedding_forward(threads_, batch, context, width, tokens, table, positions, x);
  }
  void embedding_backward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const T* dx, T* d_table,
                          T* d_positions, T beta) override {
    trainer::embedding_backward(threads_, batch, context, width, tokens, dx, d_table, d_positions, beta);
  }
  void loss_forward(std::size_t rows, std::size_t vocabulary, const T* logits, const Token* targets, T* losses, T* log_sums) override;
  void loss_backward(std::size_t rows, std::size_t vocabulary, const Token* targets, const T* log_sums, T scale, T* logits) override;
  void drop(const Dropout& dropout, std::size_t samples, std::size_t length, T* x) override {
    trainer::drop(threads_, dropout, samples, length, x);
  }
  void add(std::size_t n, const T* x, T* y) override;
  void round(Precision precision, std::size_t n, T* x) override;
  void pack(Precision precision, std::size_t n, const T* x, std::uint16_t* out) override;
  void unpack(Precision precision, std::size_t n, const std::uint16_t* x, T* out) override;
  void adamw(std::size_t n, const AdamWStep& step, const T* gradient, T* first, T* second, T* weights) override;
  void sum_squares(std::size_t blocks, const T* x, double* squares) override;

 private:
  Threads& threads_;
};

}  // namespace tutti::trainer
