#include "trainer/text.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/random.h"

namespace tutti::trainer {
namespace {

// A rule's right-hand sides; $X stands for the rule X. Choices fall by a counter, evenly.
struct Rule {
  char name;
  std::vector<std::string_view> forms;
};

const std::vector<Rule>& grammar() {
  static const std::vector<Rule> rules = {
      {'S', {"$N $V $O.", "$N $V $O $W.", "$W, $N $V $O.", "$N and $M $P $O.", "\"$Q,\" $T $N.", "$N $I, and $M $I $W.",
             "When $N $I, $M $V $O.", "Nobody heard $O, so $N $V it again."}},
      {'N', {"the conductor", "the first violin", "the old cellist", "a young oboist", "the drummer", "the singer", "the whole choir",
             "the second horn", "our pianist", "the quiet bassoon player"}},
      {'M', {"the harpist", "the trumpets", "the flutes", "a viola player", "the audience", "the page turner", "the apprentice"}},
      {'V', {"played", "tuned", "lost", "remembered", "repeated", "wanted to hear", "wrote down", "slowly practised", "never liked"}},
      {'P', {"played", "shared", "rehearsed", "copied", "argued about", "sang"}},
      {'O', {"the melody", "a long note", "the slow movement", "the $A score", "the $A part", "every $A bar", "the last chord",
             "the $A song"}},
      {'A', {"difficult", "hidden", "bright", "forgotten", "simple", "sad", "broken", "golden"}},
      {'W', {"before the concert", "after the break", "in the morning", "with great care", "without a word", "in the empty hall",
             "on the third evening", "under the window", "as softly as possible"}},
      {'Q', {"once more", "from the beginning", "that was too loud", "listen to each other", "count the rests", "not so fast"}},
      {'T', {"said", "whispered", "called", "wrote"}},
      {'I', {"stopped", "waited", "smiled", "listened", "came too late", "breathed in", "looked up"}},
  };
  return rules;
}

void expand(char name, std::uint64_t& draws, std::string& text) {
  for (const Rule& rule : grammar()) {
    if (rule.name != name) continue;
    const std::string_view form = rule.forms[mix(0x7475747469, draws++) % rule.forms.size()];
    for (std::size_t i = 0; i < form.size(); ++i) {
      if (form[i] == '$') expand(form[++i], draws, text);
      else text += form[i];
    }
  }
}

}  // namespace

std::string generated_text(std::size_t bytes) {
  std::string text;
  std::uint64_t draws = 0;
  for (std::size_t sentence = 1; text.size() < bytes; ++sentence) {
    const std::size_t begin = text.size();
    expand('S', draws, text);
    char& initial = text[begin] == '"' ? text[begin + 1] : text[begin];
    if (initial >= 'a' && initial <= 'z') initial = char(initial - 'a' + 'A');
    text += sentence % 6 == 0 ? '\n' : ' ';
  }
  text.resize(bytes);
  return text;
}

double bigram_entropy(const std::string& text) {
  std::vector<double> pairs(256 * 256), singles(256);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const auto a = std::size_t(static_cast<unsigned char>(text[i])), b = std::size_t(static_cast<unsigned char>(text[i + 1]));
    ++pairs[a * 256 + b];
    ++singles[a];
  }
  double sum = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] > 0) sum -= pairs[i] * std::log(pairs[i] / singles[i / 256]);
  }
  return sum / double(text.size() - 1);
}

}  // namespace tutti::trainer
