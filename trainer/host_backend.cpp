#include "trainer/host_backend.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "trainer/loss.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kPiece = 1 << 14;       // numbers that are worth a thread

}  // namespace

template <class T>
void* HostBackend<T>::allocate(std::size_t bytes) {
  void* at = std::calloc(bytes, 1);
  if (!at) throw std::bad_alloc();
  return at;
}
template <class T>
void HostBackend<T>::release(void* at) {
  std::free(at);
}
template <class T>
void HostBackend<T>::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
template <class T>
void HostBackend<T>::clear(void* at, std::size_t bytes) {
  if (bytes > 0) std::memset(at, 0, bytes);
}

template <class T>
void HostBackend<T>::loss_forward(std::size_t rows, std::size_t vocabulary, const T* logits, const Token* targets, T* losses, T* log_sums) {
  trainer::loss_forward(threads_, rows, vocabulary, logits, targets, losses, log_sums);
}
template <class T>
void HostBackend<T>::loss_backward(std::size_t rows, std::size_t vocabulary, const Token* targets, const T* log_sums, T scale, T* logits) {
  trainer::loss_backward(threads_, rows, vocabulary, targets, log_sums, scale, logits);
}

template <class T>
void HostBackend<T>::add(std::size_t n, const T* x, T* y) {
  threads_.ranges(n, kPiece, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

template <class T>
void HostBackend<T>::round(Precision precision, std::size_t n, T* x) {
  if constexpr (std::is_same_v<T, float>) {
    threads_.ranges(n, kPiece, [&](std::size_t begin, std::size_t end) { round_to(precision, end - begin, x + begin, x + begin); });
  }
}
template <class T>
void HostBackend<T>::pack(Precision precision, std::size_t n, const T* x, std::uint16_t* out) {
  if constexpr (std::is_same_v<T, float>) {
    threads_.ranges(n, kPiece, [&](std::size_t begin, std::size_t end) { trainer::pack(precision, end - begin, x + begin, out + begin); });
  }
}
template <class T>
void HostBackend<T>::unpack(Precision precision, std::size_t n, const std::uint16_t* x, T* out) {
  if constexpr (std::is_same_v<T, float>) {
    threads_.ranges(n, kPiece, [&](std::size_t begin, std::size_t end) { trainer::unpack(precision, end - begin, x + begin, out + begin); });
  }
}

template <class T>
void HostBackend<T>::adamw(std::size_t n, const AdamWStep& step, const T* gradient, T* first, T* second, T* weights) {
  if constexpr (std::is_same_v<T, float>) trainer::adamw(threads_, n, step, gradient, first, second, weights);
}
template <class T>
void HostBackend<T>::sum_squares(std::size_t blocks, const T* x, double* squares) {
  if constexpr (std::is_same_v<T, float>) trainer::sum_squares(threads_, blocks, x, squares);
}

template class HostBackend<float>;
template class HostBackend<double>;

}  // namespace tutti::trainer
