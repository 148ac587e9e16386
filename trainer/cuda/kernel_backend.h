#pragma once
// The Backend whose layers are the kernels of kernels.h: it fills in their arguments and says how many blocks there are. Who runs them, and
// who multiplies matrices, is said by a class that derives from it: CudaBackend on a GPU, in tests one that emulates.
#include <vector>

#include "trainer/backend.h"
#include "trainer/cuda/kernels.h"

namespace tutti::trainer::cuda {

// c[m][n] = alpha a[m][k] b[k][n] + beta c, as gemm.h has it. `precision` is what a and b are stored in; sums and c are f32.
struct Product {
  std::size_t m, n, k;
  float alpha;
  const void *a, *b;
  std::size_t lda, ldb;
  Form form_a, form_b;
  Precision precision;
  float beta;
  float* c;
  std::size_t ldc;
};

class KernelBackend : public Backend<float> {
 public:
  void product(std::size_t m, std::size_t n, std::size_t k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c,
               std::size_t ldc, Precision precision) override;
  void linear_forward(std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x, const float* w, const float* b, float* y,
                      const float* onto, Precision precision) override;
  void linear_backward(std::size_t rows, std::size_t inputs, std::size_t outputs, const float* x, const float* w, const float* dy, float* dx,
                       float* d_w, float* d_b, float beta, Precision precision) override;
  void norm_forward(NormKind kind, std::size_t rows, std::size_t width, const float* x, const float* weight, const float* bias, float* y,
                    float* mean, float* scale) override;
  void norm_backward(NormKind kind, std::size_t rows, std::size_t width, const float* x, const float* weight, const float* mean,
                     const float* scale, const float* dy, float* dx, float* d_weight, float* d_bias, float beta) override;
  void activation_forward(ActivationKind kind, std::size_t rows, std::size_t width, const float* x, float* y) override;
  void activation_backward(ActivationKind kind, std::size_t rows, std::size_t width, const float* x, const float* dy, float* dx) override;
  void rope(Turn turn, std::size_t rows, std::size_t context, std::size_t heads, std::size_t size, float* x, std::size_t stride) override;
  // Heads of at most kLargestHead numbers; throws Failure for larger ones.
  void attention_forward(const AttentionShape& shape, const Dropout& dropout, const float* qkv, float* out, float* log_sums) override;
  void attention_backward(const AttentionShape& shape, const Dropout& dropout, const float* qkv, const float* out, const float* log_sums,
                          const float* d_out, float* d_qkv) override;
  void embedding_forward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const float* table,
                         const float* positions, float* x) override;
  void embedding_backward(std::size_t batch, std::size_t context, std::size_t width, const Token* tokens, const float* dx, float* d_table,
                          float* d_positions, float beta) override;
  void loss_forward(std::size_t rows, std::size_t vocabulary, const float* logits, const Token* targets, float* losses,
                    float* log_sums) override;
  void loss_backward(std::size_t rows, std::size_t vocabulary, const Token* targets, const float* log_sums, float scale,
                     float* logits) override;
  void drop(const Dropout& dropout, std::size_t samples, std::size_t length, float* x) override;
  void add(std::size_t n, const float* x, float* y) override;
  void round(Precision precision, std::size_t n, float* x) override;
  void pack(Precision precision, std::size_t n, const float* x, std::uint16_t* out) override;
  void unpack(Precision precision, std::size_t n, const std::uint16_t* x, float* out) override;
  void adamw(std::size_t n, const AdamWStep& step, const float* gradient, float* first, float* second, float* weights) override;
  void sum_squares(std::size_t blocks, const float* x, double* squares) override;

 protected:
  // `most_blocks`: beyond so many, blocks take several parts each where they can.
  explicit KernelBackend(std::size_t most_blocks) : most_blocks_(most_blocks) {}
  virtual void launch(int kernel, std::size_t blocks, const void* arguments) = 0;
  virtual void multiply(const Product& product) = 0;
  void release_rooms() { rooms_[0] = {}, rooms_[1] = {}, along_ = {}; }

 private:
  template <class Body>
  void run(std::size_t blocks, const typename Body::Arguments& arguments) {
    if (blocks > 0) launch(place_in<Body>(Kernels()), blocks, &arguments);
  }
  template <class Body>
  void over_elements(std::size_t n, const typename Body::Arguments& arguments) {
    over_rows<Body>((n + kThreads - 1) / kThreads, arguments);
  }
  template <class Body>
  void over_rows(std::size_t rows, const typename Body::Arguments& arguments) {
    run<Body>(rows < most_blocks_ ? rows : most_blocks_, arguments);
  }
  template <class Body>
  void over_columns(std::size_t width, const typename Body::Arguments& arguments) {
    over_rows<Body>((width + kColumns - 1) / kColumns, arguments);
  }
  // As a kernel wants heads of up to 64 numbers, or up to 128.
  template <template <std::size_t> class Body>
  void over_tiles(const AttentionShape& shape, std::size_t heads, const AttentionArguments& arguments);
  // A matrix of `rows` x `columns`, as it is stored, in 16 bits.
  const void* narrowed(Precision precision, Matrix<float> x, std::size_t rows, std::size_t columns, Array<std::uint16_t>& room);

  const std::size_t most_blocks_;
  // Grow to what was needed. A device that allocates them must still be there when they go: release_rooms(), in its destructor.
  Array<std::uint16_t> rooms_[2];
  Array<float> along_;
};

}  // namespace tutti::trainer::cuda
