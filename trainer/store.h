#pragma once
// Where a model's weights come from and where its gradients go, unit by unit. The model knows no more of being one of many ranks.
#include <cstddef>
#include <vector>

#include "trainer/embedding.h"
#include "trainer/layout.h"

namespace tutti::trainer {

template <class T>
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The unit's weights, valid until release(); it may be asked for again while it is held. `next` is the unit that will be asked
  // for after this one, or this one where none is foreseen.
  virtual const T* weights(std::size_t unit, std::size_t next) = 0;
  virtual void release(std::size_t unit) = 0;
};

template <class T>
struct GradientPlace {
  T* data;
  bool fresh;       // what is there counts nothing and may be overwritten; else the new gradient is to be added
};

template <class T>
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual GradientPlace<T> gradient(std::size_t unit) = 0;
  // The head's part of the embedding's gradient is in its place. True: it is on its way to other ranks, so nothing may be added to it there;
  // what the rows that were looked up have to add is then given to looked_up(): dx[rows of the batch][width].
  virtual bool head_finished() { return false; }
  virtual void looked_up(const Token*, const T*) {}
  // This micro-batch has nothing more for the unit's numbers from `from` on. Called from the last unit to the first, in each with
  // `from` falling, at the end with 0.
  virtual void finished(std::size_t unit, std::size_t from) = 0;
};

// Both, in whole arrays of this process.
template <class T>
class WholeWeights : public WeightSource<T> {
 public:
  explicit WholeWeights(const Layout& layout) : layout_(layout), data_(layout.count()) {}
  const T* weights(std::size_t unit, std::size_t) override { return at(unit); }
  void release(std::size_t) override {}
  T* at(std::size_t unit) { return data_.data() + layout_.units()[unit].offset; }
  std::vector<T>& data() { return data_; }

 private:
  const Layout& layout_;
  std::vector<T> data_;
};

template <class T>
class WholeGradients : public GradientSink<T> {
 public:
  explicit WholeGradients(const Layout& layout) : layout_(layout), data_(layout.count()) {}
  // The next micro-batch overwrites.
  void restart() { fresh_ = true; }
  GradientPlace<T> gradient(std::size_t unit) override { return {data_.data() + layout_.units()[unit].offset, fresh_}; }
  void finished(std::size_t unit, std::size_t) override {
    if (unit == 0) fresh_ = false;
  }
  std::vector<T>& data() { return data_; }
  std::size_t data_bytes() const { return data_.size() * sizeof(T); }

 private:
  const Layout& layout_;
  std::vector<T> data_;
  bool fresh_ = true;
};

}  // namespace tutti::trainer
