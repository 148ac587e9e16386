#pragma once
// The generators by family, one .cpp file each. Others use generate.h.
#include "algorithms/generate.h"

namespace tutti::algorithms {

// A generator for two ranks or more; `direct` serves one rank.
class Family : public Generator {
 public:
  std::string_view refusal(const Request& request) const final;
  bool same_bits(const Request&) const override { return true; }
  bool canonical(const Request& request) const override;   // here: true when nothing is reduced
  bool sends_partials(
      const Request& request) const override;  // here: true when something is, among three ranks or more

 private:
  // Asked only about requests of a collective with two ranks or more and a valid root.
  virtual std::string_view refuses(const Request& request) const = 0;
};

const Generator& direct();               // direct.cpp
const Generator& two_shot();             // direct.cpp
const Generator& ring();                 // ring.cpp
const Generator& bidirectional_ring();   // ring.cpp
const Generator& recursive_doubling();   // doubling.cpp
const Generator& circulant();            // circulant.cpp
const Generator& bruck();                // bruck.cpp
const Generator& pat();                  // pat.cpp
const Generator& tree();                 // tree.cpp
const Generator& binomial();             // binomial.cpp
const Generator& scatter_all_gather();   // binomial.cpp
const Generator& chain();                // chain.cpp
const Generator& pairwise();             // chain.cpp
const Generator& hierarchical();         // hierarchical.cpp

}  // namespace tutti::algorithms
