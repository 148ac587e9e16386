// What people and scripts read: the table's lines, JSON and CSV, the drawing, who started the process, who failed.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

#include "perf/driver/launch.h"
#include "perf/driver/origin.h"
#include "perf/driver/plot.h"
#include "perf/driver/record.h"
#include "perf/driver/split.h"
#include "perf/driver/table.h"
#include "perf/driver/timing.h"

namespace tutti::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Record = Run;  // gtest has a Run of its own

Row some_row() {
  Row row{.bytes = 8, .count = 2, .type = "float", .op = "sum", .root = -1, .algorithm = "ring", .transport = "shm"};
  row.out_of_place = {.time_us = 9.8,
                      .p50_us = 9,
                      .p95_us = 11,
                      .p99_us = 12,
                      .min_us = 8,
                      .max_us = 13,
                      .spread = 0.25,
                      .algbw = 0.001,
                      .busbw = 0.002,
                      .wrong = 0};
  row.in_place = row.out_of_place;
  row.in_place->time_us = 12345.6;
  row.in_place->busbw = 123.456;
  row.in_place->wrong = std::nullopt;
  return row;
}

TEST(Table, ARowHasNcclTestsColumnsAndTwoMore) {
  EXPECT_EQ(row_text(some_row(), {}),
            "           8             2     float     sum      -1     9.80    0.00    0.00       0  12345.6    0.00  "
            "123.46     N/A"
            "              ring        shm\n");
}
TEST(Table, TitlesStandOverTheirColumns) {
  Options plain, more;
  more.per_iteration = more.timestamps = true;
  Row row = some_row();
  row.timestamp = "2024-01-02 03:04:05";
  for (const Options& o : {plain, more}) {
    std::istringstream lines(columns_text(o));
    std::string places, names;
    std::getline(lines, places);
    std::getline(lines, names);
    EXPECT_EQ(names.size() + 1, row_text(row, o).size());
    EXPECT_NE(places.find("in-place"), std::string::npos);
  }
  EXPECT_THAT(columns_text(plain),
              HasSubstr("#       size         count      type   redop    root     time   algbw   busbw  #wrong"));
}
TEST(Table, NumbersKeepTheirWidth) {
  EXPECT_EQ(fitted(1.239, 6), "  1.24");
  EXPECT_EQ(fitted(1234.56, 6), "1234.6");
  EXPECT_EQ(fitted(12345.6, 6), " 12346");
  EXPECT_EQ(fitted(9999.99, 7), "9999.99");
}
TEST(Table, MissingPlacementsAreNamed) {
  Row row = some_row();
  row.in_place.reset();
  EXPECT_THAT(row_text(row, {}), HasSubstr("      N/A     N/A     N/A     N/A"));
  EXPECT_EQ(row_text(row, {}).size(), row_text(some_row(), {}).size());
}
TEST(Table, TheEndSaysWhatIsWrong) {
  Record run{.program = "all_reduce_perf", .rows = {some_row()}};
  EXPECT_EQ(closing_text(run, {}, std::nullopt),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 61.729\n#\n"
            "# Collective test concluded: all_reduce_perf\n#\n");
  run.out_of_bounds = 3;
  run.rows[0].out_of_place.error_over_bound = 1.5;
  const std::string text = closing_text(run, {}, false);
  EXPECT_THAT(text, HasSubstr("values : 3 FAILED"));
  EXPECT_THAT(text, HasSubstr("error / bound    : 1.500 FAILED"));
  EXPECT_THAT(text, HasSubstr("bandwidth    : 61.729 FAILED"));
}

TEST(Files, JsonComesBack) {
  Record run{.program = "all_reduce_perf",
             .version = "0.1.0",
             .args = {"-b", "8\xff"},
             .ranks = 4,
             .rows = {some_row(), some_row()}};
  run.rows[1].in_place.reset();
  const Result<Record> back = from_json(to_json(run));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->rows.size(), 2u);
  EXPECT_EQ(back->rows[0].out_of_place.p99_us, 12);
  EXPECT_EQ(back->rows[0].out_of_place.wrong, 0);
  EXPECT_EQ(back->rows[0].in_place->wrong, std::nullopt);
  EXPECT_FALSE(back->rows[1].in_place);
  EXPECT_DOUBLE_EQ(back->average_busbw(), (0.002 + 123.456 + 0.002) / 3);
  EXPECT_FALSE(from_json("{}").ok());
  EXPECT_FALSE(from_json("size,time\n").ok());
}
TEST(Files, CsvHasAsManyFieldsAsNames) {
  Record run{.rows = {some_row(), some_row()}};
  run.rows[1].in_place.reset();
  std::istringstream lines(to_csv(run));
  std::vector<std::ptrdiff_t> commas;
  for (std::string line; std::getline(lines, line);) commas.push_back(std::count(line.begin(), line.end(), ','));
  EXPECT_THAT(commas, ElementsAre(20, 20, 20));
  EXPECT_THAT(to_csv(run), HasSubstr("8,2,float,sum,-1,ring,shm,9.8,9,11,12,0.001,0.002,0,12345.6,"));
}

TEST(Timing, PercentilesByNearestRank) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  EXPECT_EQ(percentile(samples, 0.50), 50);
  EXPECT_EQ(percentile(samples, 0.99), 99);
  EXPECT_EQ(percentile({7}, 0.5), 7);
  Figures figures;
  add_samples(figures, {1000, 2, 4, 6, 8}, 2, 1);
  EXPECT_EQ(figures.max_us, 4);
  EXPECT_EQ(figures.p50_us, 2);
  EXPECT_NEAR(figures.spread, std::sqrt(1.25) / 2.5, 1e-12);
}
TEST(Timing, SmallSizesAreTimedMoreOften) {
  EXPECT_EQ(iterations_for(1, 20), 10000);
  EXPECT_EQ(iterations_for(100, 20), 200);
  EXPECT_EQ(iterations_for(1e6, 20), 20);
}

TEST(Origin, LaunchersAreKnownByTheirNames) {
  EXPECT_EQ(find_origin({}, "bash")->launcher, "");
  EXPECT_EQ(find_origin({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "mpirun")->rank_count, 4);
  EXPECT_EQ(find_origin({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "python3")->launcher, "torchrun");
  EXPECT_EQ(find_origin({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "hydra_pmi_proxy")->launcher, "MPICH");
  EXPECT_EQ(find_origin({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, "slurmstepd")->launcher, "Slurm");
  EXPECT_EQ(find_origin({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, "bash")->launcher, "");
}
TEST(Origin, HalfOfALauncherIsAnError) {
  EXPECT_THAT(find_origin({{"RANK", "1"}}, "bash").status().text(), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(find_origin({{"TUTTI_RANK_COUNT", "1"}}, "bash").status().text(), HasSubstr("TUTTI_RANK is not"));
  EXPECT_THAT(find_origin({}, "mpirun").status().text(), HasSubstr("started by mpirun"));
  EXPECT_THAT(find_origin({{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "bash").status().text(), HasSubstr("WORLD_SIZE=two"));
}

TEST(Split, AllSpellings) {
  EXPECT_EQ(split_from({{"NCCL_TESTS_SPLIT", "MOD2"}}).value()->color_of(5), 1);
  EXPECT_EQ(split_from({{"NCCL_TESTS_SPLIT", "/ 4"}}).value()->color_of(9), 2);
  EXPECT_EQ(split_from({{"NCCL_TESTS_SPLIT", "&0x6"}}).value()->color_of(5), 4);
  EXPECT_EQ(split_from({{"NCCL_TESTS_SPLIT_MASK", "0x1"}}).value()->color_of(5), 1);
  EXPECT_FALSE(split_from({}).value());
  EXPECT_FALSE(split_from({{"NCCL_TESTS_SPLIT", "%0"}}).ok());
  EXPECT_FALSE(split_from({{"NCCL_TESTS_SPLIT", "XOR1"}}).ok());
}

TEST(Launch, EqualFailuresAreToldOnce) {
  EXPECT_EQ(merged_failures("2 lost rank 3\n0 lost rank 3\n3 was killed\n"),
            "ranks 0, 2: lost rank 3\nrank 3: was killed\n");
  EXPECT_EQ(merged_failures(""), "");
}

Series line(const std::string& label, double scale) {
  Series s{label, {}};
  for (double bytes = 8; bytes <= 134217728; bytes *= 2) s.points.emplace_back(bytes, scale * bytes / (bytes + 65536));
  return s;
}
std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
TEST(Plot, LinesAreLabelledAndTheirLabelsApart) {
  const std::string svg = to_svg({line("one", 5), line("two & <a>", 5.01), line("three", 4.99)}, "all_reduce_perf");
  EXPECT_EQ(count_of(svg, "<polyline"), 3u);
  EXPECT_THAT(svg, HasSubstr(">two &amp; &lt;a&gt;</text>"));
  for (const char* tick : {">8<", ">64<", ">512<", ">4K<", ">32K<", ">256K<", ">2M<", ">16M<", ">128M<"})
    EXPECT_THAT(svg, HasSubstr(tick));
  std::vector<double> heights;
  const std::regex label("<text x='[^']*' y='([0-9.]+)' fill='#[^']*' font-weight");
  for (std::sregex_iterator it(svg.begin(), svg.end(), label), end; it != end; ++it)
    heights.push_back(std::stod((*it)[1]));
  ASSERT_EQ(heights.size(), 3u);
  std::sort(heights.begin(), heights.end());
  EXPECT_GE(heights[1] - heights[0], 16);
  EXPECT_GE(heights[2] - heights[1], 16);
}
TEST(Plot, OneSeriesForEachTypeAndWithoutSizeZero) {
  Record run{.program = "p", .ranks = 2, .rows = {some_row(), some_row(), some_row()}};
  run.rows[1].type = "half";
  run.rows[2].bytes = 0;
  const std::vector<Series> series = series_of(run, "mine");
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].label, "mine, float sum");
  EXPECT_EQ(series[0].points.size(), 1u);
  run.rows.resize(1);
  EXPECT_EQ(series_of(run, "")[0].label, "p, 2 ranks");
}
TEST(Plot, NothingMeasuredIsStillADrawing) { EXPECT_THAT(to_svg({{"empty", {}}}, "t"), HasSubstr("</svg>")); }

}  // namespace
}  // namespace tutti::perf
