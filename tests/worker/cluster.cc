#include "tests/worker/cluster.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "central/planning/fixed_planner.h"
#include "central/run/run_planning.h"
#include "compress/codec.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/daemon.h"

namespace runnel {
namespace {

// Tells where central listens as soon as it does.
class TellingControl final : public ControlTransport {
 public:
  TellingControl(ControlTransport* inner, std::function<void(const std::string&)> listening)
      : inner_(inner), listening_(std::move(listening)) {}

  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(
      const std::string& address, CentralControlObserver* observer) override {
    RUNNEL_ASSIGN_OR_RETURN(auto central, inner_->Listen(address, observer));
    listening_(central->address());
    return central;
  }
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override {
    return inner_->Connect(address, timeout_ms, observer);
  }

 private:
  ControlTransport* inner_;
  std::function<void(const std::string&)> listening_;
};

class FastClock final : public Clock {
 public:
  explicit FastClock(int64_t rate) : rate_(rate) {}
  int64_t NowNanos() const override { return rate_ * clock_.NowNanos(); }

 private:
  MonotonicClock clock_;
  int64_t rate_;
};

}  // namespace

absl::StatusOr<TrainingOutcome> RunCluster(const ClusterOptions& options) {
  MonotonicClock clock;
  FastClock worker_clock(options.worker_clock_rate);
  NullLogger logger;
  RunDisplay display(ProgressOptions{}, -1, &clock);
  std::vector<std::thread> workers;
  TellingControl control(options.control, [&](const std::string& address) {
    for (int i = 0; i < options.run->setup.workers; ++i) {
      workers.emplace_back([&, i, address] {
        WorkerOptions daemon_options;
        daemon_options.central_address = address;
        daemon_options.name = absl::StrCat("w", i);
        daemon_options.listen_address = options.data_address;
        daemon_options.backends = BackendNames();
        daemon_options.recipes = RecipeOffers();
        daemon_options.codecs = CodecFamilies();
        Daemon daemon(daemon_options, {options.transport, options.control, &worker_clock, &logger});
        daemon.Run().IgnoreError();
      });
    }
  });
  TrainingJob job;
  const RunSetup& setup = options.run->setup;
  job.setup = &setup;
  job.data = &options.run->data;
  job.first_step = options.first_step;
  job.stop_step = setup.stop_step;
  if (options.state.has_value()) job.state = *options.state;
  std::unique_ptr<Planner> planner;
  if (options.plan.has_value()) {
    planner = std::make_unique<FixedPlanner>(*options.plan);
  } else {
    RUNNEL_ASSIGN_OR_RETURN(planner, MakeRunPlanner(setup, job.stop_step));
  }
  job.planner = planner.get();
  absl::StatusOr<TrainingOutcome> outcome;
  {
    TrainerParts parts{options.transport, &control, &clock, &logger, &display, nullptr, false};
    // Everybody lives in this process, also where addresses are none of TCP's.
    parts.ask_port = [](const std::string&, const std::function<void(PortAnswer)>& tell) {
      tell(PortAnswer::kAnswered);
    };
    Trainer trainer(std::move(job), parts);
    outcome = trainer.Run();
  }
  for (std::thread& worker : workers) worker.join();
  return outcome;
}

}  // namespace runnel
