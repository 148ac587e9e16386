#pragma once
// Elastic: a job whose ranks may die and come back while it runs, as `tutti run --max-restarts` and `--min-ranks` start
// it.
//
//   auto elastic = Elastic::from_environment();
//   for (;;) {
//     share the state among elastic->communicator()'s ranks: some may be new and have none
//     work; every now and then take_in(): true: the ranks have changed, share again
//     an operation fails with peer_lost, timeout or network: go_on(), and share again
//   }
//
// A slot is a place in the job: TUTTI_RANK of its process, also of the one that is started in its stead. Ranks are
// slots that are there, in order: when all are, the rank is the slot. From one thread.
#include <memory>
#include <string>
#include <tutti/communicator.h>

namespace tutti {

namespace comm { class Membership; }

class Elastic {
 public:
  // Waits until the ranks of the job have met, or those that are at work take this process in. Without such a launcher
  // as Communicator::from_environment(): then nobody is taken in, and go_on() gives invalid_state. aborted: the job has
  // ended meanwhile; else as from_environment().
  static Result<Elastic> from_environment(const Options& options = {});
  Elastic(Elastic&&) noexcept;
  Elastic& operator=(Elastic&&) noexcept;
  ~Elastic();

  // The ranks of now. Null after a go_on() that failed: this process has no place among them.
  std::shared_ptr<Communicator> communicator() const;
  bool can_go_on() const;        // there is such a launcher
  int worlds() const;            // how many the job has had with this one, as this process knows
  int least() const;             // --min-ranks
  bool enough() const;           // rank_count() >= least(); never without a place

  // Collective, between operations. Whether ranks that waited were taken in: the communicator is a new one then; the
  // one of before still works among those of before while somebody holds it. A
  // failure is that of an operation: go_on() helps.
  Result<bool> take_in();
  // After a failure. Those that are left go on as a new communicator; when they are fewer than least(), they wait for
  // more as long as some may come, at most TUTTI_INIT_TIMEOUT: look at enough(). A rank that the others have left
  // behind waits until they take it in again. aborted, timeout, invalid_state.
  Status go_on();
  // The job is over: nobody is started, or taken in, any more. By any rank; the first text counts.
  void end(const std::string& why);

 private:
  explicit Elastic(std::unique_ptr<comm::Membership> membership);
  std::unique_ptr<comm::Membership> membership_;
};

}  // namespace tutti
