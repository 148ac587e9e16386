#include "tools/doctor/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/doctor/findings.h"
#include "tools/text_block.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::size_t kWidth = 110;

struct Mark {
  const char *tick, *colour;
};
Mark mark_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return {"✓", "\033[32m"};
    case Verdict::note: return {"·", "\033[36m"};
    case Verdict::warn: return {"!", "\033[33m"};
    case Verdict::fail: return {"✗", "\033[31m"};
  }
  return {"?", ""};
}

std::string place_of(const Finding& finding, bool several) {
  return several && !finding.about.empty() ? finding.about + ": " : "";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

constexpr const char* kHead = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tutti doctor</title>
<style>
:root { --ink: #1b1f24; --dim: #667; --paper: #fff; --line: #d8dce2; --band: #f5f7fa; --pass: #2e7d4f; --note: #2f6fb3; --warn: #b86e00; --fail: #c5303b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #99a; --paper: #14171b; --line: #333a44; --band: #1b2027; --pass: #5fbf86; --note: #5b9fe0; --warn: #e39a4b; --fail: #ee5f6b; } }
@media print { :root { --ink: #000; --dim: #444; --paper: #fff; --line: #bbb; --band: #fff; } body { margin: 0; } }
body { margin: 1.5rem; font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; } td, th { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.mark { font-weight: bold; text-align: center; } .pass .mark { color: var(--pass); } .note .mark { color: var(--note); } .warn .mark { color: var(--warn); } .fail .mark { color: var(--fail); }
.warn, .fail { background: var(--band); } .cure { color: var(--dim); } .cure::before { content: "try: "; }
</style></head><body>
)page";

std::string findings_table(const Examination& examination) {
  std::string out = "<table>\n";
  for (const Finding& f : examination.findings) {
    const std::string verdict = nlohmann::json(f.verdict).get<std::string>();
    out += fmt::format(
        "<tr class=\"{}\"><td class=\"mark\" title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}{}</td></tr>\n", verdict,
        verdict, mark_of(f.verdict).tick, escaped(f.topic), escaped(f.about), escaped(f.text),
        f.cure.empty() ? "" : fmt::format("<div class=\"cure\">{}</div>", escaped(f.cure)));
  }
  return out + "</table>\n";
}

// From the row to the column.
std::string pair_cell(const Examination& examination, int from, int to) {
  for (const Pair& pair : examination.pairs) {
    const bool there = pair.from == from && pair.to == to;
    if (!there && !(pair.from == to && pair.to == from)) continue;
    const Flow& flow = there ? pair.there : pair.here;
    if (pair.from_address.empty()) return "not reached";
    return fmt::format("{}<br><span class=\"dim\">{:.0f} µs, MTU {}</span>", rate_text(flow.bytes_per_second),
                       pair.round_trip_us, pair.path_mtu);
  }
  return "";
}

std::string pair_table(const Examination& examination) {
  if (examination.pairs.empty()) return "";
  const auto names = name_hosts(examination.hosts);
  std::string out = "<h2>From row to column</h2>\n<table><tr><th></th>";
  for (const std::string& name : names) out += fmt::format("<th>{}</th>", escaped(name));
  out += "</tr>\n";
  for (std::size_t i = 0; i < names.size(); ++i) {
    out += fmt::format("<tr><th>{}</th>", escaped(names[i]));
    for (std::size_t j = 0; j < names.size(); ++j)
      out += fmt::format("<td>{}</td>",
                         i == j ? "" : pair_cell(examination, examination.hosts[i].rank, examination.hosts[j].rank));
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string hosts_table(const Examination& examination) {
  std::string out =
      "<h2>Hosts</h2>\n<table><tr><th>host</th><th>system</th><th>cores</th><th>memory</th><th>addresses</th></tr>\n";
  const auto names = name_hosts(examination.hosts);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Facts& f = examination.hosts[i];
    out += fmt::format(
        "<tr><td>{}</td><td>{}<br><span class=\"dim\">tutti {}{}</span></td><td>{}<br><span "
        "class=\"dim\">{}</span></td><td>{}</td><td>{}</td></tr>\n",
        escaped(names[i]), escaped(f.kernel), escaped(f.version),
        f.driver.empty() ? "" : ", NVIDIA " + escaped(f.driver), f.cores, escaped(f.processor), bytes_text(f.memory),
        escaped(fmt::format("{}", fmt::join(f.chosen, ", "))));
  }
  return out + "</table>\n";
}

}  // namespace

std::string summary(const Examination& examination) {
  int count[4] = {};
  for (const Finding& finding : examination.findings) ++count[int(finding.verdict)];
  const auto told = [](int n, const char* one, const char* many) {
    return n == 0 ? fmt::format("no {}", one) : fmt::format("{} {}", n, n == 1 ? one : many);
  };
  const std::size_t hosts = examination.hosts.size();
  const std::string where = hosts == 0 ? "" : fmt::format("{} host{}: ", hosts, hosts == 1 ? "" : "s");
  return fmt::format("{}{} passed, {}, {}, {}", where, count[0], told(count[1], "note", "notes"),
                     told(count[2], "warning", "warnings"), told(count[3], "failure", "failures"));
}

std::string text_view(const Examination& examination, bool colour) {
  std::string out = fmt::format("tutti doctor {}, {}\n\n", printable(examination.version), printable(examination.when));
  std::size_t width = 0;
  for (const Finding& finding : examination.findings) width = std::max(width, columns(printable(finding.topic)));
  for (const Finding& finding : examination.findings) {
    const Mark mark = mark_of(finding.verdict);
    const std::string topic = printable(finding.topic),
                      tick = colour ? fmt::format("{}{}\033[0m", mark.colour, mark.tick) : mark.tick;
    const std::string head = fmt::format(" {} {}{}  ", tick, topic, std::string(width - columns(topic), ' '));
    const std::string indent(width + 5, ' ');
    out += wrapped(printable(place_of(finding, examination.hosts.size() > 1) + finding.text), head, indent, kWidth);
    if (!finding.cure.empty()) out += wrapped("try: " + printable(finding.cure), indent, indent + "     ", kWidth);
  }
  return out + fmt::format("\n{}\n", summary(examination));
}

std::string json_view(const Examination& examination) { return dump(nlohmann::json(examination), 2) + "\n"; }

std::string html_view(const Examination& examination) {
  return kHead +
         fmt::format("<h1>tutti doctor</h1>\n<p>{} <span class=\"dim\">tutti {}, {}</span></p>\n",
                     escaped(summary(examination)), escaped(examination.version), escaped(examination.when)) +
         findings_table(examination) + pair_table(examination) + hosts_table(examination) + "</body></html>\n";
}

}  // namespace tutti::tools::doctor
