#include "trainer/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <type_traits>
#include <vector>

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
constexpr std::size_t kRoundedSide = 512, kRoundedDepth = 1024;      // of what is rounded at a time: 2 MB, to stay in a cache
constexpr double kWorthSharing = 1 << 18;           // multiplications; below, waking a thread costs more than it brings

// `rows` x `columns` as they are stored.
Matrix<float> rounded(Precision precision, Matrix<float> x, std::size_t rows, std::size_t columns, std::vector<float>& room) {
  if (x.form == Form::transposed) std::swap(rows, columns);
  room.resize(std::max(room.size(), rows * columns));
  for (std::size_t r = 0; r < rows; ++r) round_to(precision, columns, x.data + r * x.ld, room.data() + r * columns);
  return {room.data(), columns, x.form};
}

// The shorter side of c whole, the longer one and k in pieces.
void rounded_product(std::size_t m, std::size_t n, std::size_t k, float alpha, Matrix<float> a, Matrix<float> b, float beta, float* c,
                     std::size_t ldc, Precision precision) {
  thread_local std::vector<float> room_a, room_b;
  const bool by_rows = m > n;
  for (std::size_t depth = 0; depth < k; depth += kRoundedDepth) {
    const std::size_t deep = std::min(kRoundedDepth, k - depth);
    const Matrix<float> a_part = columns_from(a, depth), b_part = rows_from(b, depth);
    const float keep = depth == 0 ? beta : 1.0f;
    const Matrix<float> whole = by_rows ? rounded(precision, b_part, deep, n, room_b) : rounded(precision, a_part, m, deep, room_a);
    for (std::size_t first = 0; first < (by_rows ? m : n); first += kRoundedSide) {
      const std::size_t count = std::min(kRoundedSide, (by_rows ? m : n) - first);
      if (by_rows) product(count, n, deep, alpha, rounded(precision, rows_from(a_part, first), count, deep, room_a), whole, keep, c + first * ldc, ldc);
      else product(m, count, deep, alpha, whole, rounded(precision, columns_from(b_part, first), deep, count, room_b), keep, c + first, ldc);
    }
  }
}

}  // namespace

template <class T>
void product(std::size_t m, std::size_t n, std::size_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c, std::size_t ldc, Precision precision) {
  if constexpr (std::is_same_v<T, float>) {
    if (precision != Precision::f32) return rounded_product(m, n, k, alpha, a, b, beta, c, ldc, precision);
  }
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
             std::size_t ldc, Precision precision) {
  const auto parts = std::size_t(threads.product_parts());
  if (parts == 1 || double(m) * double(n) * double(k) < kWorthSharing) return product(m, n, k, alpha, a, b, beta, c, ldc, precision);
  const bool by_rows = m > n;
  const std::size_t length = by_rows ? m : n;
  const std::size_t piece = ((length + parts - 1) / parts + kTile - 1) / kTile * kTile;
  threads.each((length + piece - 1) / piece, [&](std::size_t part) {
    const std::size_t first = part * piece, count = std::min(piece, length - first);
    if (by_rows) product(count, n, k, alpha, rows_from(a, first), b, beta, c + first * ldc, ldc, precision);
    else product(m, count, k, alpha, a, columns_from(b, first), beta, c + first, ldc, precision);
  });
}

#define TUTTI_FOR(T)                                                                                                         \
  template void product(std::size_t, std::size_t, std::size_t, T, Matrix<T>, Matrix<T>, T, T*, std::size_t, Precision);    \
  template void product(Threads&, std::size_t, std::size_t, std::size_t, T, Matrix<T>, Matrix<T>, T, T*, std::size_t, Precision);
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
