#pragma once
// Weights of a model on many ranks. Each rank's optimizer changes its share, then publish() makes the change known.
//   ResidentWeights   whole on each rank (DDP, ZeRO-1, ZeRO-2)
//   ShardedWeights    a rank keeps its share; units are gathered when the model asks for them (ZeRO-3)
#include <map>
#include <memory>
#include <vector>

#include "trainer/shares.h"
#include "trainer/store.h"
#include "trainer/wire.h"

namespace tutti::trainer {

class SharedWeights : public WeightSource<float> {
 public:
  virtual float* owned(std::size_t unit) = 0;      // this rank's share of a unit, in the device's memory as all here
  virtual void publish() = 0;
  // Takes this rank's part of a unit that is known whole, on the host.
  virtual void set(std::size_t unit, const float* whole) = 0;
  virtual std::size_t bytes() const = 0;
};

class ResidentWeights : public SharedWeights {
 public:
  ResidentWeights(const Layout& layout, const Shares& shares, Wire& wire, Device& device);
  const float* weights(std::size_t unit, std::size_t) override { return at(unit); }
  void release(std::size_t) override {}
  float* owned(std::size_t unit) override { return at(unit) + shares_.mine(unit).begin; }
  void publish() override;
  void set(std::size_t unit, const float* whole) override;
  std::size_t bytes() const override { return whole_.bytes(); }

 private:
  float* at(std::size_t unit) { return whole_.data() + layout_.units()[unit].offset; }
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  Device& device_;
  Array<float> whole_;
};

// All ranks ask for the same units in the same order. The next one is gathered while the model works on this one.
class ShardedWeights : public SharedWeights {
 public:
  ShardedWeights(const Layout& layout, const Shares& shares, Wire& wire, Device& device);
  const float* weights(std::size_t unit, std::size_t next) override;
  void release(std::size_t unit) override;
  float* owned(std::size_t unit) override { return owned_[unit].data(); }
  void publish() override;
  void set(std::size_t unit, const float* whole) override;
  std::size_t bytes() const override;

 private:
  struct Gathered {
    Array<float> data;
    Exchange exchange;
  };
  Gathered& gather(std::size_t unit);
  Array<float> room(std::size_t count);
  const Layout& layout_;
  const Shares& shares_;
  Wire& wire_;
  Device& device_;
  std::vector<Array<float>> owned_;
  std::map<std::size_t, Gathered> gathered_;
  std::vector<Array<float>> free_;    // kept for the next unit of that size: mapping memory takes longer than gathering
  std::size_t rooms_ = 0;             // numbers in all that were ever gathered at one time
};

}  // namespace tutti::trainer
