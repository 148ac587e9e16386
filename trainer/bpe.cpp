#include "trainer/bpe.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <queue>

#include "trainer/gpt2_bytes.h"
#include "trainer/safetensors.h"
#include "trainer/unicode.h"
#include "trainer/words.h"

namespace tutti::trainer {
namespace {

using nlohmann::json;
constexpr const char* kTiktoken = "tokens.tiktoken";

Status wrong(const std::string& path, const std::string& what) { return Status(Code::invalid_argument, fmt::format("tokenizer {}: {}", path, what)); }

Result<std::string> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) return wrong(path, "cannot be read");
  return text;
}

std::string visible(std::string_view bytes) {
  constexpr auto characters = gpt2_characters();
  std::string out;
  for (const char c : bytes) {
    const std::uint32_t point = characters[static_cast<unsigned char>(c)];
    if (point < 0x80) out += char(point);
    else out += char(0xc0 | point >> 6), out += char(0x80 | (point & 0x3f));
  }
  return out;
}

// The way back; empty where a character stands for no byte.
std::string bytes_from(std::string_view visible) {
  static const auto bytes = [] {
    std::unordered_map<std::uint32_t, char> all;
    const auto characters = gpt2_characters();
    for (unsigned byte = 0; byte < 256; ++byte) all[characters[byte]] = char(byte);
    return all;
  }();
  std::string out;
  for (std::size_t at = 0; at < visible.size();) {
    const CodePoint c = code_point_at(visible, at);
    const auto found = bytes.find(c.value);
    if (found == bytes.end()) return "";
    out += found->second;
    at += c.bytes;
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::string to_base64(const std::string& bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  return out.substr(0, std::size_t(n));
}

// Empty where it is none.
std::string from_base64(const std::string& text) {
  std::string out(text.size(), '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  return n < int(padding) ? "" : out.substr(0, std::size_t(n) - padding);
}

}  // namespace

Result<Bpe> Bpe::open(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return open_tiktoken(path);
  if (const std::string file = saved_in(path); file.ends_with(kTiktoken)) return open_tiktoken(file);
  for (const auto& [merges, vocabulary] : {std::pair{"/vocab.bpe", "/encoder.json"}, {"/merges.txt", "/vocab.json"}}) {
    if (fs::exists(path + merges) && fs::exists(path + vocabulary)) return open_pair(path + merges, path + vocabulary);
  }
  return wrong(path, "holds neither vocab.bpe and encoder.json nor merges.txt and vocab.json; a tiktoken file is named itself");
}

std::string Bpe::saved_in(const std::string& folder) {
  for (const std::string name : {kTiktoken, "vocab.json"}) {
    if (std::filesystem::exists(folder + "/" + name)) return folder + "/" + name;
  }
  return "";
}

Result<Bpe> Bpe::open_pair(const std::string& merges, const std::string& vocabulary) {
  const auto text = read(vocabulary), rules = read(merges);
  if (!text) return text.status();
  if (!rules) return rules.status();
  const json j = json::parse(*text, nullptr, false);
  if (!j.is_object() || j.empty()) return wrong(vocabulary, "is no JSON object of tokens");
  Bpe bpe;
  bpe.tokens_.resize(j.size());
  std::vector<bool> taken(j.size());
  std::unordered_map<std::string, Token> by_text;
  for (const auto& [name, id] : j.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= j.size() || taken[id.get<std::size_t>()]) {
      return wrong(vocabulary, fmt::format("the number of \"{}\" is {}: each below {} must be there once", name, id.dump(), j.size()));
    }
    const std::string bytes = bytes_from(name);
    const auto token = Token(id.get<std::size_t>());
    taken[std::size_t(token)] = true;
    bpe.tokens_[std::size_t(token)] = bytes.empty() ? name : bytes;
    by_text[name] = token;
    if (bytes.size() == 1) bpe.bytes_[static_cast<unsigned char>(bytes[0])] = token;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (bpe.bytes_[byte] < 0) return wrong(vocabulary, fmt::format("has no token for the byte {}", byte));
  }
  std::size_t number = 0;
  for (const std::string& line : lines_of(*rules)) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t gap = line.find(' ');
    const auto find = [&](const std::string& name) {
      const auto found = by_text.find(name);
      return found == by_text.end() ? Token(-1) : found->second;
    };
    const Token a = gap == std::string::npos ? -1 : find(line.substr(0, gap)), b = gap == std::string::npos ? -1 : find(line.substr(gap + 1));
    const Token merged = a < 0 || b < 0 ? -1 : find(line.substr(0, gap) + line.substr(gap + 1));
    if (merged < 0) return wrong(merges, fmt::format("line {}, \"{}\", is no pair of tokens that make a third", number, line));
    bpe.rules_.try_emplace(pair(a, b), Rule{std::uint32_t(bpe.merges_.size()), merged});
    bpe.merges_.emplace_back(a, b);
  }
  return bpe;
}

Result<Bpe> Bpe::open_tiktoken(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return wrong(path, "is neither a folder nor a file");
  const auto text = read(path);
  if (!text) return text.status();
  Bpe bpe;
  bpe.tiktoken_ = true;
  std::unordered_map<std::string, Token> by_bytes;
  std::size_t number = 0;
  for (const std::string& line : lines_of(*text)) {
    ++number;
    if (line.empty()) continue;
    const std::size_t gap = line.find(' ');
    const std::string bytes = gap == std::string::npos ? "" : from_base64(line.substr(0, gap));
    const std::string rank = bytes.empty() ? "" : line.substr(gap + 1);
    const bool digits = !rank.empty() && rank.size() < 9 && std::all_of(rank.begin(), rank.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || std::size_t(std::stoul(rank)) != bpe.tokens_.size()) {
      return wrong(path, fmt::format("line {} is not the base64 of a token and its rank {}", number, bpe.tokens_.size()));
    }
    by_bytes[bytes] = Token(bpe.tokens_.size());
    if (bytes.size() == 1) bpe.bytes_[static_cast<unsigned char>(bytes[0])] = Token(bpe.tokens_.size());
    bpe.tokens_.push_back(bytes);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (bpe.bytes_[byte] < 0) return wrong(path, fmt::format("has no token for the byte {}", byte));
  }
  for (std::size_t token = 0; token < bpe.tokens_.size(); ++token) {      // whatever joins to a token may
    const std::string& bytes = bpe.tokens_[token];
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = by_bytes.find(bytes.substr(0, cut)), right = by_bytes.find(bytes.substr(cut));
      if (left != by_bytes.end() && right != by_bytes.end()) bpe.rules_[pair(left->second, right->second)] = {std::uint32_t(token), Token(token)};
    }
  }
  bpe.words_ = std::move(by_bytes);
  return bpe;
}

Status Bpe::save(const std::string& folder) const {
  std::string text;
  if (tiktoken_) {
    for (std::size_t token = 0; token < tokens_.size(); ++token) text += fmt::format("{} {}\n", to_base64(tokens_[token]), token);
    return write_text(folder, kTiktoken, text).status();
  }
  // A special token is one that no rule makes and that is no byte.
  std::vector<bool> made(tokens_.size());
  for (const auto& [tokens, rule] : rules_) made[std::size_t(rule.merged)] = true;
  json vocabulary = json::object();
  for (std::size_t token = 0; token < tokens_.size(); ++token) {
    const bool plain = made[token] || tokens_[token].size() == 1;
    vocabulary[plain ? visible(tokens_[token]) : tokens_[token]] = token;
  }
  text = "#version: 0.2\n";
  for (const auto& [a, b] : merges_) text += visible(bytes_of(a)) + " " + visible(bytes_of(b)) + "\n";
  if (const Status status = write_text(folder, "merges.txt", text).status(); !status) return status;
  return write_text(folder, "vocab.json", vocabulary.dump()).status();
}

std::vector<Token> Bpe::encode(std::string_view text) const {
  std::vector<Token> out;
  std::unordered_map<std::string_view, std::vector<Token>> known;      // words come again
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = word_length(text, at);
    const auto [entry, fresh] = known.try_emplace(text.substr(at, length));
    if (fresh) encode_word(entry->first, entry->second);
    out.insert(out.end(), entry->second.begin(), entry->second.end());
  }
  return out;
}

// The earliest rule first, of equal ones the leftmost: a queue of merges, with those that have become impossible passed over.
void Bpe::encode_word(std::string_view word, std::vector<Token>& out) const {
  struct Place {
    Token token;
    std::size_t before, behind;      // places; size() at the ends
  };
  struct Merge {
    std::uint32_t rank;
    std::size_t at;
    Token left, right;
    bool operator<(const Merge& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  if (const auto found = words_.find(std::string(word)); found != words_.end()) return out.push_back(found->second);
  const std::size_t none = word.size();
  std::vector<Place> places;
  for (std::size_t i = 0; i < word.size(); ++i) places.push_back({bytes_[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1, i + 1});
  std::priority_queue<Merge> merges;
  const auto offer = [&](std::size_t at) {
    if (at == none || places[at].behind == none) return;
    const Token left = places[at].token, right = places[places[at].behind].token;
    const auto rule = rules_.find(pair(left, right));
    if (rule != rules_.end()) merges.push({rule->second.rank, at, left, right});
  };
  for (std::size_t i = 0; i < none; ++i) offer(i);
  while (!merges.empty()) {
    const Merge merge = merges.top();
    merges.pop();
    Place& left = places[merge.at];
    if (left.token != merge.left || left.behind == none || places[left.behind].token != merge.right) continue;
    const std::size_t gone = left.behind;
    left.token = rules_.at(pair(merge.left, merge.right)).merged;
    left.behind = places[gone].behind;
    places[gone].token = -1;
    if (left.behind != none) places[left.behind].before = merge.at;
    offer(left.before);
    offer(merge.at);
  }
  for (std::size_t at = 0; at != none; at = places[at].behind) out.push_back(places[at].token);
}

std::string Bpe::decode(const std::vector<Token>& tokens) const {
  std::string text;
  for (const Token token : tokens) {
    if (token >= 0 && std::size_t(token) < tokens_.size()) text += bytes_of(token);
  }
  return text;
}

}  // namespace tutti::trainer
