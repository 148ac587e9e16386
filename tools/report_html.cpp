#include "tools/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/call.h"
#include "tools/report_text.h"

namespace tutti::tools {
namespace {

using nlohmann::json;
using record::Chapter;
using record::Story;

constexpr const char* kHead = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tutti report</title>
<style>
:root { --ink: #1b1f24; --dim: #667; --paper: #fff; --line: #d8dce2; --busy: #2f6fb3; --wait: #a9c8e8; --open: #d9822b; --bad: #c5303b; --band: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --dim: #99a; --paper: #14171b; --line: #333a44; --busy: #5b9fe0; --wait: #2d4a69; --open: #e39a4b; --bad: #ee5f6b; --band: #1b2027; } }
body { margin: 1.5rem; font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
pre { font: 12px/1.5 ui-monospace, monospace; background: var(--band); border: 1px solid var(--line); border-radius: 6px; padding: .75rem 1rem; white-space: pre-wrap; }
svg { width: 100%; display: block; border: 1px solid var(--line); border-radius: 6px; cursor: grab; touch-action: none; user-select: none; }
svg text { font: 11px ui-monospace, monospace; fill: var(--ink); } svg .dim { fill: var(--dim); }
.key span { display: inline-block; margin-right: 1.2rem; } .key i { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin-right: .4em; vertical-align: -1px; }
button { font: inherit; color: inherit; background: var(--band); border: 1px solid var(--line); border-radius: 5px; padding: .1rem .6rem; }
#tip { min-height: 1.5em; color: var(--dim); font: 12px ui-monospace, monospace; }
</style></head><body>
)page";

constexpr const char* kKey = R"page(<h2>Timeline</h2>
<p class="key"><span><i style="background:var(--wait)"></i>waits for the last peer's first data</span><span><i style="background:var(--busy)"></i>moves data</span>
<span><i style="background:var(--open)"></i>not complete</span><span><i style="background:var(--bad)"></i>failed, or never called</span>
<button id="all">whole</button> <span class="dim">wheel: zoom, drag: move</span></p>
<svg id="line" role="img" aria-label="timeline of all ranks"></svg><div id="tip"></div>
)page";

constexpr const char* kScript = R"page(<script>
"use strict";
const svg = document.getElementById("line"), tip = document.getElementById("tip"), left = 190, row = 26, top0 = 24;
let from = 0, span = data.span;
function make(name, attributes, parent) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  parent.appendChild(e);
  return e;
}
function words(us) {
  const a = Math.abs(us);
  return a < 1e3 ? us.toPrecision(3) + " us" : a < 1e6 ? (us / 1e3).toPrecision(4) + " ms" : (us / 1e6).toPrecision(5) + " s";
}
function box(x0, x1, y, height, color, text, width) {
  if (x1 < left || x0 > width) return;
  x0 = Math.max(x0, left); x1 = Math.min(x1, width);
  const e = make("rect", {x: x0, y: y, width: Math.max(x1 - x0, 0.8), height: height, fill: "var(--" + color + ")"}, svg);
  make("title", {}, e).textContent = text;
  e.onmouseenter = () => { tip.textContent = text; };
}
function draw() {
  svg.textContent = "";
  const width = svg.clientWidth || 1000, height = top0 + row * data.ranks.length + 6, scale = (width - left) / span;
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  svg.style.height = height + "px";
  const unit = Math.pow(10, Math.floor(Math.log10(span / 4))), step = [1, 2, 5, 10].map(k => k * unit).find(k => span / k < 9);
  for (let t = Math.ceil(from / step) * step; t <= from + span; t += step) {
    const x = left + (t - from) * scale;
    make("line", {x1: x, x2: x, y1: 16, y2: height, stroke: "var(--line)"}, svg);
    make("text", {x: x + 3, y: 13, class: "dim"}, svg).textContent = words(t);
  }
  data.ranks.forEach((rank, r) => {
    const y = top0 + r * row;
    make("text", {x: 6, y: y + 16}, svg).textContent = rank.name;
    let pixel = -1;
    for (const o of rank.operations) {
      const [start, end, wait, sequence, call, code, peer] = o, stop = end === null ? data.span : end;
      if (stop < from || start > from + span) continue;
      const x0 = left + (start - from) * scale, x1 = left + (stop - from) * scale;
      if (x1 - x0 < 0.5 && Math.floor(x0) === pixel && code === 0 && end !== null) continue;
      pixel = Math.floor(x0);
      const text = rank.name + ": operation " + sequence + " " + data.calls[call] + ", begun at " + words(start) +
        (end === null ? ", not complete" : ", took " + words(end - start)) + (wait > 0 && peer >= 0 ? ", rank " + peer + "'s data came after " + words(wait) : "") +
        (code ? ", " + data.codes[code] : "");
      const middle = Math.min(x1, left + (start + wait - from) * scale);
      if (code) box(x0, x1, y + 4, row - 10, "bad", text, width);
      else if (end === null) box(x0, x1, y + 4, row - 10, "open", text, width);
      else {
        box(x0, middle, y + 7, row - 16, "wait", text, width);
        box(middle, x1, y + 4, row - 10, "busy", text, width);
      }
    }
    for (const [sequence, at] of rank.never) {
      const x = left + (at - from) * scale;
      if (x < left || x > width) continue;
      make("path", {d: "M" + x + " " + (y + 3) + "v" + (row - 8), stroke: "var(--bad)", "stroke-width": 2, "stroke-dasharray": "3 2"}, svg);
      const label = make("text", {x: Math.min(x + 4, width - 150), y: y + 16}, svg);
      label.style.fill = "var(--bad)";
      label.textContent = "never called " + sequence;
    }
  });
}
svg.onwheel = e => {
  e.preventDefault();
  const width = svg.clientWidth, at = from + Math.max(0, e.offsetX - left) / (width - left) * span, factor = e.deltaY < 0 ? 0.8 : 1.25;
  span = Math.min(Math.max(span * factor, 1), data.span * 1.1);
  from = at - Math.max(0, e.offsetX - left) / (width - left) * span;
  draw();
};
let held = null;
svg.onpointerdown = e => { held = [e.clientX, from]; svg.setPointerCapture(e.pointerId); };
svg.onpointermove = e => { if (held) { from = held[1] - (e.clientX - held[0]) / (svg.clientWidth - left) * span; draw(); } };
svg.onpointerup = () => { held = null; };
document.getElementById("all").onclick = () => { from = 0; span = data.span; draw(); };
window.onresize = draw;
draw();
</script></body></html>
)page";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// As a JavaScript value: no text in it can end the script.
std::string script_value(const json& value) {
  std::string out;
  for (const char c : value.dump(-1, ' ', true, json::error_handler_t::replace))
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

double microseconds(std::int64_t ns) { return double(ns / 10) / 100; }

struct Range {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
};

Range range_of(const Story& story) {
  Range range;
  for (const Chapter& c : story.chapters)
    for (const Chapter::Part& part : c.parts) {
      range.first = std::min(range.first, part.started);
      range.last = std::max({range.last, part.started, part.ended});
    }
  for (std::size_t i = 0; i < story.ranks.size() && range.last > 0; ++i)
    if (story.ranks[i].end == record::End::running)
      range.last = std::max(range.last, story.ranks[i].last_beat + story.shift[i]);
  if (range.last <= range.first) range.last = range.first + 1000;
  return range;
}

json data_of(const Story& story) {
  const Range range = range_of(story);
  std::map<std::uint64_t, std::size_t> calls;
  std::map<int, json> rows;
  json out;
  out["calls"] = json::array();
  for (const record::Recording& r : story.ranks)
    if (rows.size() < kMostDrawnRanks)
      rows[r.rank] = {{"name", rank_text(story, r.rank)}, {"operations", json::array()}, {"never", json::array()}};
  for (const Chapter& c : story.chapters) {
    for (const Chapter::Part& part : c.parts) {
      if (!rows.count(part.rank)) continue;
      const auto [call, fresh] = calls.try_emplace(part.operation.call, calls.size());
      if (fresh) out["calls"].push_back(comm::to_string(comm::unpack(part.operation.call)));
      rows[part.rank]["operations"].push_back({microseconds(part.started - range.first),
                                               part.ended ? json(microseconds(part.ended - range.first)) : json(),
                                               microseconds(part.operation.last_after), part.operation.sequence,
                                               call->second, part.operation.code, part.operation.last_peer});
    }
    for (const int rank : c.not_called)
      if (rows.count(rank) && rows[rank]["never"].empty())
        rows[rank]["never"].push_back({c.sequence, microseconds(c.parts[0].started - range.first)});
  }
  out["span"] = microseconds(range.last - range.first) * 1.02;
  out["codes"] = json::array();
  for (int code = 0; code <= int(kLastCode); ++code) out["codes"].push_back(code_name(Code(code)));
  out["ranks"] = json::array();
  for (auto& [rank, row] : rows) out["ranks"].push_back(std::move(row));
  return out;
}

}  // namespace

std::string report_html(const Story& story) {
  std::string page = kHead;
  page += fmt::format("<h1>tutti report</h1>\n<p class=\"dim\">job {:016x}</p>\n", story.job);
  page += kKey;
  page += "<h2>In words</h2>\n<pre>" + escaped(report_text(story)) + "</pre>\n";
  page += "<script>const data = " + script_value(data_of(story)) + ";</script>\n";
  return page + kScript;
}

}  // namespace tutti::tools
