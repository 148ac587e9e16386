#pragma once
// The text that a first run trains on when no file is given: short sentences about musicians and rehearsals from a small grammar,
// the same on every machine. Generated, so that nothing need be shipped or fetched.
#include <cstddef>
#include <string>

namespace tutti::trainer {

std::string generated_text(std::size_t bytes);

// Bits of chance in a text, in nats a character, as tables of single characters and of pairs see it: what a model must get below to
// have learned more than which character follows which.
double bigram_entropy(const std::string& text);

}  // namespace tutti::trainer
