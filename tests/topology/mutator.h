#pragma once
// Mutator: damage to texts such as files meet it (cut, stuttered, spliced, lines moved), and such as a hostile hand
// does it (words of the format and absurd values where others stood). A pure function of its seed.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tutti::topology::test {

class Mutator {
 public:
  // `words` of the format are put in anywhere. At least one base.
  Mutator(std::uint64_t seed, std::vector<std::string> bases, std::vector<std::string> words);
  // One of the bases with one to six changes. Half of the texts keep their
  // brackets, mostly, and so get past an XML parser.
  std::string next();

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& base() { return bases_[below(bases_.size())]; }
  std::size_t place_in(const std::string& text) { return below(text.size() + 1); }
  void break_anywhere(std::string& text);
  void replace_value(std::string& text);
  void replace_number(std::string& text);
  void move_line(std::string& text);

  std::mt19937_64 random_;
  std::vector<std::string> bases_, words_;
};

}  // namespace tutti::topology::test
