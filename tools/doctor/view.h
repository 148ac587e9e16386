#pragma once
// An Examination for people and programs: a tick list as text, JSON, or one self-contained page. They judge nothing.
#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

std::string text_view(const Examination& examination, bool colour);
std::string json_view(const Examination& examination);
std::string html_view(const Examination& examination);
// "2 hosts: 31 passed, 1 note, no warning", for the last line.
std::string summary(const Examination& examination);

}  // namespace tutti::tools::doctor
