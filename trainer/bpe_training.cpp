// How a Bpe is learned: pairs are counted over the distinct words, and after each merge only the words that held the pair are
// counted anew.
#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "trainer/bpe.h"
#include "trainer/gpt2_bytes.h"
#include "trainer/words.h"

namespace tutti::trainer {
namespace {

struct Word {
  std::vector<Token> tokens;
  std::int64_t count;
};

struct Candidate {
  std::int64_t count;
  std::pair<Token, Token> tokens;
  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : tokens > other.tokens; }
};

class Counts {
 public:
  explicit Counts(std::vector<Word> words) : words_(std::move(words)) {
    for (std::size_t i = 0; i < words_.size(); ++i) count(i, 1);
    for (const auto& [tokens, count] : counts_) queue_.push({count, tokens});
  }

  // The commonest pair, or one that occurs less than twice.
  Candidate best() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const std::int64_t now = counts_[top.tokens];
      if (now == top.count) return top;      // else it has changed since, and stands in the queue with its new count too
    }
    return {0, {}};
  }

  void merge(std::pair<Token, Token> tokens, Token merged) {
    changed_.clear();
    const std::set<std::size_t> words = std::move(where_[tokens]);
    for (const std::size_t i : words) {
      count(i, -1);
      auto& row = words_[i].tokens;
      std::size_t kept = 0;
      for (std::size_t at = 0; at < row.size(); ++at) {
        const bool joins = at + 1 < row.size() && row[at] == tokens.first && row[at + 1] == tokens.second;
        row[kept++] = joins ? merged : row[at];
        at += joins ? 1 : 0;
      }
      row.resize(kept);
      count(i, 1);
    }
    where_.erase(tokens);
    for (const auto& pair : changed_) {
      if (const std::int64_t now = counts_[pair]; now > 0) queue_.push({now, pair});
      else counts_.erase(pair);
    }
  }

 private:
  void count(std::size_t word, std::int64_t sign) {
    const Word& w = words_[word];
    for (std::size_t at = 0; at + 1 < w.tokens.size(); ++at) {
      const std::pair pair{w.tokens[at], w.tokens[at + 1]};
      counts_[pair] += sign * w.count;
      changed_.insert(pair);
      if (sign > 0) where_[pair].insert(word);
    }
  }

  std::vector<Word> words_;
  std::map<std::pair<Token, Token>, std::int64_t> counts_;
  std::map<std::pair<Token, Token>, std::set<std::size_t>> where_;      // words that hold it, and some that did
  std::set<std::pair<Token, Token>> changed_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

Bpe Bpe::trained_on(std::string_view text, std::size_t vocabulary) {
  Bpe bpe;
  for (std::size_t place = 0; place < 256; ++place) {
    const unsigned char byte = gpt2_byte(place);
    bpe.tokens_.emplace_back(1, char(byte));
    bpe.bytes_[byte] = Token(place);
  }
  std::map<std::string_view, std::int64_t> distinct;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = word_length(text, at);
    ++distinct[text.substr(at, length)];
  }
  std::vector<Word> words;
  for (const auto& [word, count] : distinct) {
    Word& added = words.emplace_back(Word{{}, count});
    for (const char c : word) added.tokens.push_back(bpe.bytes_[static_cast<unsigned char>(c)]);
  }
  Counts counts(std::move(words));
  while (bpe.tokens_.size() + 1 < vocabulary) {
    const Candidate best = counts.best();
    if (best.count < 2) break;
    const auto merged = Token(bpe.tokens_.size());
    bpe.tokens_.push_back(bpe.bytes_of(best.tokens.first) + bpe.bytes_of(best.tokens.second));
    bpe.rules_[pair(best.tokens.first, best.tokens.second)] = {std::uint32_t(bpe.merges_.size()), merged};
    bpe.merges_.push_back(best.tokens);
    counts.merge(best.tokens, merged);
  }
  bpe.tokens_.emplace_back("<|endoftext|>");
  return bpe;
}

}  // namespace tutti::trainer
