#pragma once
// Job: what `tutti run` is about to start on this host, as a value: ranks, addresses, environment. It starts nothing.
#include <string>
#include <string_view>
#include <tutti/status.h>
#include <vector>

namespace tutti::tools {

struct Job {
  int local_ranks = 1;                 // on each host
  int host_count = 1;
  int host_rank = 0;                   // this host's number
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string tutti_address;           // where the library meets; empty: master_address:master_port
  std::string job_key;                 // empty: the library derives one from the address, and warns
  int restart_count = 0;               // how often all ranks were started again
  int threads = 0;                     // OMP_NUM_THREADS; 0: leave it as it is
  int rank_count() const { return local_ranks * host_count; }
  int rank(int local_rank) const { return host_rank * local_ranks + local_rank; }
};

// `base` ("NAME=value" entries) with the names of torchrun and tutti for this
// rank set; earlier values of these are replaced.
std::vector<std::string> rank_environment(const Job& job, int local_rank, const std::vector<std::string>& base);

// "host:port", "[v6]:port"
std::string address_text(const std::string& host, int port);

// A secret for a job: 32 random bytes of the kernel in hexadecimal. out_of_resources.
Result<std::string> random_key();

// Of the ranks that this host starts, one line a rank. `pids`: one a local rank.
std::string rank_table(const Job& job, const std::string& host, const std::vector<int>& pids);

// The process's own environment, as a list.
std::vector<std::string> own_environment();

std::string host_name();

}  // namespace tutti::tools
