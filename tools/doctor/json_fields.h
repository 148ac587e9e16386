#pragma once
// Values to and from JSON by one list of names: a type with `static void fields(Self&, Visit&&)` needs no more. Reading
// forgives: a name that is missing leaves the default, so that what another version has written can be read.
#include <tutti/status.h>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace tutti::tools::doctor {

struct VisitNothing {
  template <class T>
  void operator()(const char*, T&&) const {}
};
template <class T>
concept HasFields = requires(T& value) {
  T::fields(value, VisitNothing{});
};

template <HasFields T>
void to_json(nlohmann::json& out, const T& value) {
  out = nlohmann::json::object();
  T::fields(value, [&](const char* name, const auto& field) { out[name] = field; });
}
template <HasFields T>
void from_json(const nlohmann::json& in, T& value) {
  T::fields(value, [&](const char* name, auto& field) {
    if (const auto at = in.find(name); at != in.end()) at->get_to(field);
  });
}

// Broken UTF-8 (names come from files and peers) becomes a replacement character.
inline std::string dump(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

// invalid_argument: no JSON, or a value of another kind than wanted.
template <HasFields T>
Result<T> parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return Status(Code::invalid_argument, "not a JSON object");
  try {
    return json.get<T>();
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::invalid_argument, error.what());
  }
}

}  // namespace tutti::tools::doctor
