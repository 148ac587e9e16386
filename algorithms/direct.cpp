// Direct exchange: every rank talks to every rank that it has to, in one or two rounds. The least latency, the most
// messages.
#include "algorithms/borders.h"
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// One-shot: everybody reads everybody's input. In place the result waits in scratch, since the input is still being
// sent.
void one_shot_all_reduce(const Request& request, int rank, Schedule& out) {
  out.blocks = 1;
  out.steps.push_back(send(input(0), peers_after(rank, request.rank_count)));
  const Chunks target = request.in_place ? scratch(0) : output(0);
  out.steps.push_back(recv_reduce(target, input(0), peers_after(rank, request.rank_count), true));
  if (!request.in_place) return;
  out.scratch = {0};
  out.steps.push_back(copy(output(0), scratch(0)));
}

void direct_reduce_scatter(const Request& request, int rank, Schedule& out) {
  for (int peer : peers_after(rank, request.rank_count)) out.steps.push_back(send(input(peer), peer));
  out.steps.push_back(recv_reduce(output(0), input(rank), peers_after(rank, request.rank_count), true));
}

void direct_all_gather(const Request& request, int rank, Schedule& out) {
  out.steps.push_back(send(input(0), peers_after(rank, request.rank_count)));
  for (int peer : peers_before(rank, request.rank_count)) out.steps.push_back(recv(output(peer), peer));
  if (!request.in_place) out.steps.push_back(copy(output(rank), input(0)));
}

void direct_broadcast(const Request& request, int rank, Schedule& out) {
  out.blocks = 1;
  if (rank != request.root) {
    out.steps.push_back(recv(output(0), request.root));
    return;
  }
  out.steps.push_back(send(input(0), peers_after(rank, request.rank_count)));
  if (!request.in_place) out.steps.push_back(copy(output(0), input(0)));
}

void direct_reduce(const Request& request, int rank, Schedule& out) {
  out.blocks = 1;
  if (rank == request.root) {
    out.steps.push_back(recv_reduce(output(0), input(0), peers_after(rank, request.rank_count), true));
  } else {
    out.steps.push_back(send(input(0), request.root));
  }
}

void direct_gather(const Request& request, int rank, Schedule& out) {
  if (rank != request.root) {
    out.steps.push_back(send(input(0), request.root));
    return;
  }
  for (int peer : peers_after(rank, request.rank_count)) out.steps.push_back(recv(output(peer), peer));
  if (!request.in_place) out.steps.push_back(copy(output(rank), input(0)));
}

void direct_scatter(const Request& request, int rank, Schedule& out) {
  if (rank != request.root) {
    out.steps.push_back(recv(output(0), request.root));
    return;
  }
  for (int peer : peers_after(rank, request.rank_count)) out.steps.push_back(send(input(peer), peer));
  if (!request.in_place) out.steps.push_back(copy(output(0), input(rank)));
}

// In place, what is to be sent is set aside first: the block that comes from a peer lands where the one for it lay.
void direct_all_to_all(const Request& request, int rank, Schedule& out) {
  const int p = request.rank_count;
  out.blocks = std::uint32_t(p) * std::uint32_t(p);
  for (int peer : peers_after(rank, p)) {
    Chunks source = input(peer);
    if (request.in_place) {
      source = scratch(int(out.scratch.size()));
      out.scratch.push_back(std::uint32_t(rank) * std::uint32_t(p) + std::uint32_t(peer));
      out.steps.push_back(copy(source, input(peer)));
    }
    out.steps.push_back(send(source, peer));
  }
  for (int peer : peers_before(rank, p)) out.steps.push_back(recv(output(peer), peer));
  if (!request.in_place) out.steps.push_back(copy(output(rank), input(rank)));
}

Schedule alone(const Request& request) {
  Schedule out;
  if (!request.in_place) out.steps.push_back(copy(output(0), input(0)));
  return out;
}

class Direct final : public Generator {
 public:
  std::string_view name() const override { return "direct"; }
  std::string_view source() const override {
    return "folklore; Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH "
           "(2005), 4";
  }
  std::string_view best_when() const override { return "small vectors, few ranks, or memory that all ranks can read"; }
  std::string_view refusal(const Request& request) const override { return common_refusal(request); }
  bool canonical(const Request&) const override { return true; }
  bool sends_partials(const Request&) const override { return false; }
  bool same_bits(const Request&) const override { return true; }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    if (p == 1) return {};
    const double others = p - 1, part = others / p;
    switch (request.collective) {
      case Collective::all_reduce: return {1, others, 1, double(p), p - 1};
      case Collective::reduce_scatter: return {1, part, part, 1, p - 1};
      case Collective::all_gather: return {1, part, 1.0 / p, 0, p - 1};
      case Collective::broadcast: return {1, others, 1, 0, p - 1};
      case Collective::reduce: return {1, 1, 1, double(p), 1};
      case Collective::gather: return {1, 1.0 / p, 1.0 / p, 0, 1};
      default: return {1, part, part, 0, p - 1};   // scatter, all_to_all
    }
  }

  std::vector<Border> borders(const Request& request) const override {
    switch (request.collective) {
      case Collective::all_reduce: return all_pairs(request, 1, 1);
      case Collective::reduce_scatter:
      case Collective::all_gather:
      case Collective::all_to_all: return all_pairs(request, 1.0 / request.rank_count, 1);
      default: return Generator::borders(request);   // one rank has many messages, the others one
    }
  }

  Schedule generate(const Request& request, int rank) const override {
    if (request.rank_count == 1) return alone(request);
    Schedule out;
    out.blocks = std::uint32_t(request.rank_count);
    switch (request.collective) {
      case Collective::all_reduce: one_shot_all_reduce(request, rank, out); break;
      case Collective::reduce_scatter: direct_reduce_scatter(request, rank, out); break;
      case Collective::all_gather: direct_all_gather(request, rank, out); break;
      case Collective::broadcast: direct_broadcast(request, rank, out); break;
      case Collective::reduce: direct_reduce(request, rank, out); break;
      case Collective::gather: direct_gather(request, rank, out); break;
      case Collective::scatter: direct_scatter(request, rank, out); break;
      default: direct_all_to_all(request, rank, out); break;
    }
    return out;
  }
};

class TwoShot final : public Family {
 public:
  std::string_view name() const override { return "two_shot"; }
  std::string_view source() const override {
    return "direct reduce_scatter, then direct all_gather: NVIDIA's two-shot kernels";
  }
  std::string_view best_when() const override {
    return "middle and large vectors inside a host: two rounds, one pass over n inputs";
  }
  bool canonical(const Request&) const override { return true; }
  bool sends_partials(const Request&) const override { return false; }
  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    const double part = double(p - 1) / p;
    return {2, 2 * part, part + 1.0 / p, 1, 2 * (p - 1)};
  }
  std::vector<Border> borders(const Request& request) const override {
    return all_pairs(request, 1.0 / request.rank_count, 2);
  }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count;
    Schedule out;
    out.blocks = std::uint32_t(p);
    for (int peer : peers_after(rank, p)) out.steps.push_back(send(input(peer), peer));
    out.steps.push_back(recv_reduce(output(rank), input(rank), peers_after(rank, p), true));
    out.steps.push_back(send(output(rank), peers_after(rank, p)));
    for (int peer : peers_before(rank, p)) out.steps.push_back(recv(output(peer), peer));
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    return request.collective == Collective::all_reduce ? "" : "is an all_reduce only";
  }
};

}  // namespace

const Generator& direct() {
  static const Direct generator;
  return generator;
}
const Generator& two_shot() {
  static const TwoShot generator;
  return generator;
}

}  // namespace tutti::algorithms
