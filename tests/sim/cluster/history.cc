#include "tests/sim/cluster/history.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/cluster/history_rules.h"
#include "tests/sim/cluster/oracle.h"
#include "tests/sim/cluster/simulated_central.h"
#include "tests/sim/cluster/simulated_worker.h"
#include "tests/sim/cluster/world.h"

namespace runnel {
namespace {

constexpr double kNsPerSecond = 1e9;
// After which an end that hears nothing gives a connection up.
constexpr int64_t kKeepaliveNs = 5'000'000'000;
constexpr int64_t kTestSamples = 10;
constexpr int64_t kMostEvents = 20'000'000;

// Each value of a sample is its index, so that no two are alike.
class NumberedSamples final : public Dataset {
 public:
  NumberedSamples(int64_t size, float offset) : size_(size), offset_(offset) {}
  int64_t size() const override { return size_; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return kHashWidth; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::fill(out.begin(), out.end(), static_cast<float>(index) + offset_);
  }
  int32_t label(int64_t index) const override { return static_cast<int32_t>(index % kHashWidth); }

 private:
  const int64_t size_;
  const float offset_;
  const Shape shape_{kHashWidth};
};

TrainingSettings TrainingOf(const Scenario& scenario, uint64_t seed) {
  TrainingSettings training;
  training.seed = seed;
  training.dataset_samples = scenario.samples;
  training.batch_size = scenario.batch;
  training.micro_batches = scenario.micro_batches;
  training.eval_batch_size = scenario.batch;
  training.clip_norm = scenario.clips ? 1 : 0;
  return training;
}

class Simulation {
 public:
  Simulation(const Scenario& scenario, uint64_t seed, PlantedBug bug, bool keeps_log)
      : scenario_(scenario),
        world_(scenario, seed, bug, keeps_log),
        training_(TrainingOf(scenario, seed)),
        data_{std::make_unique<NumberedSamples>(scenario.samples, 0.25F),
              std::make_unique<NumberedSamples>(kTestSamples, 0.5F)},
        oracle_(training_, data_, world_.zeros),
        rules_(&world_, &oracle_, MakeBatching(training_).value()),
        transport_(world_.network.NewTransport(kCentralNode)),
        control_(world_.control.NewTransport(kCentralNode, "10.0.0.1")) {}
  ~Simulation() {
    central_.reset();
    workers_.clear();
  }

  History Run();

 private:
  void AddWorkers();
  void StartCentral();
  void KillCentral();
  SimulatedWorker* Find(const std::string& name);
  // Of this fault, now; null: there is none.
  SimulatedWorker* Draw(const std::string& target);

  void ScheduleFaults();
  void ScheduleNext(const FaultSpec& fault, int count);
  void Happen(const FaultSpec& fault);
  void HappenToCentral(const FaultSpec& fault, int64_t for_ns);
  void HappenTo(SimulatedWorker& worker, const FaultSpec& fault, int64_t for_ns);
  void Cut(const std::string& node, int64_t for_ns);
  void StartWhenGone(SimulatedWorker& worker);
  void CutLink(const std::string& a, const std::string& b, int64_t for_ns);
  void Break(const std::string& node);
  void Later(int64_t delay_ns, std::function<void()> what) {
    world_.network.ScheduleAt(world_.now_ns() + delay_ns, std::move(what));
  }
  void CheckEnd();

  const Scenario& scenario_;
  World world_;
  const TrainingSettings training_;
  const DatasetSplits data_;
  Oracle oracle_;
  HistoryRules rules_;
  SimulatedDisk disk_;
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<ControlTransport> control_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::unique_ptr<SimulatedCentral> central_;
  int64_t pending_ = 0;    // faults that are to come, or to heal
  int64_t healed_ns_ = 0;  // when the last one did
  int64_t happened_ = 0;
  int cuts_ = 0;
};

void Simulation::AddWorkers() {
  int number = 0;
  const auto add = [&](const std::string& name, bool is_behind = false) {
    workers_.push_back(
        std::make_unique<SimulatedWorker>(&world_, name, number++, kCentralAddress, is_behind));
    return workers_.back().get();
  };
  for (int i = 0; i < scenario_.locals; ++i) add(absl::StrCat("local-", i));
  for (int i = 0; i < scenario_.workers; ++i)
    add(absl::StrCat("pi-", i), i < scenario_.behind)->Start();
  for (int i = 0; i < scenario_.spares; ++i) {
    SimulatedWorker* const spare = add(absl::StrCat("spare-", i));
    ++pending_;
    Later(world_.DrawNs({0.2, 2}, kNsPerSecond, kFaultDraws), [this, spare] {
      spare->Start();
      --pending_;
      healed_ns_ = world_.now_ns();
    });
  }
}

SimulatedWorker* Simulation::Find(const std::string& name) {
  for (const auto& worker : workers_) {
    if (worker->name() == name) return worker.get();
  }
  return nullptr;
}

void Simulation::StartCentral() {
  SimulatedCentral::Parts parts;
  parts.world = &world_;
  parts.rules = &rules_;
  parts.disk = &disk_;
  parts.data = &data_;
  parts.transport = transport_.get();
  parts.control = control_.get();
  parts.start_local = [this](const std::string& name) {
    // One that was stopped would come back under this name.
    Find(name)->Kill();
    Find(name)->Start();
  };
  parts.runs = [this](const std::string& name) { return Find(name)->runs(); };
  central_ = std::make_unique<SimulatedCentral>(parts, training_);
}

void Simulation::KillCentral() {
  world_.Record("central is killed");
  central_->SetFrozen(false);
  world_.nodes[kCentralNode] = NodeState::kDown;
  world_.control.LoseNode(kCentralNode);
  world_.network.LoseNode(kCentralNode);
  central_.reset();
  // Its children end with it.
  for (const auto& worker : workers_) {
    if (absl::StartsWith(worker->name(), "local")) worker->Kill();
  }
}

SimulatedWorker* Simulation::Draw(const std::string& target) {
  std::vector<SimulatedWorker*> all;
  for (const auto& worker : workers_) {
    const bool is_local = absl::StartsWith(worker->name(), "local");
    const bool fits = target == "any" || (target == "local") == is_local;
    if (fits && worker->runs() && !worker->frozen()) all.push_back(worker.get());
  }
  if (all.empty()) return nullptr;
  return all[world_.Below(static_cast<uint32_t>(all.size()), kFaultDraws)];
}

// ---- faults

void Simulation::ScheduleFaults() {
  for (const FaultSpec& fault : scenario_.faults) {
    pending_ += fault.most;
    ScheduleNext(fault, fault.most);
  }
}

void Simulation::ScheduleNext(const FaultSpec& fault, int count) {
  if (count == 0) return;
  Later(world_.DrawNs(fault.every_s, kNsPerSecond, kFaultDraws), [this, &fault, count] {
    if (central_ != nullptr && central_->finished()) {
      pending_ -= count;
      return;
    }
    Happen(fault);
    ScheduleNext(fault, count - 1);
  });
}

// Whatever it is, it heals, and then it is no more pending.
void Simulation::Happen(const FaultSpec& fault) {
  const int64_t for_ns = world_.DrawNs(fault.for_s, kNsPerSecond, kFaultDraws);
  Later(for_ns + 1, [this] {
    --pending_;
    healed_ns_ = world_.now_ns();
  });
  ++happened_;
  if (fault.target == kCentralNode) return HappenToCentral(fault, for_ns);
  if (SimulatedWorker* const worker = Draw(fault.target)) HappenTo(*worker, fault, for_ns);
}

void Simulation::HappenToCentral(const FaultSpec& fault, int64_t for_ns) {
  if (central_ == nullptr) return;
  switch (fault.kind) {
    case FaultKind::kCrash:
      // Without a check-point there is nothing to go on from.
      if (disk_.checkpoints.empty()) return;
      KillCentral();
      return Later(for_ns, [this] {
        if (central_ == nullptr) StartCentral();
      });
    case FaultKind::kFreeze:
      world_.Record("central is stopped");
      central_->SetFrozen(true);
      return Later(for_ns, [this] {
        world_.Record("central is continued");
        if (central_ != nullptr) central_->SetFrozen(false);
      });
    case FaultKind::kPartition:
      return Cut(kCentralNode, for_ns);
    case FaultKind::kBreak:
      return Break(kCentralNode);
    case FaultKind::kDiskFull:
      world_.Record("the disk is full");
      disk_.full = true;
      return Later(for_ns, [this] { disk_.full = false; });
    case FaultKind::kDiskRot:
      if (disk_.checkpoints.size() < 2) return;
      world_.Record("the newest check-point cannot be read any more");
      return disk_.checkpoints.pop_back();
    case FaultKind::kCutLink:
      if (SimulatedWorker* const worker = Draw("any"))
        CutLink(kCentralNode, worker->name(), for_ns);
      return;
    case FaultKind::kDrain:
      return;
  }
}

void Simulation::HappenTo(SimulatedWorker& worker, const FaultSpec& fault, int64_t for_ns) {
  switch (fault.kind) {
    case FaultKind::kCrash:
      world_.Record(absl::StrCat(worker.name(), " is killed"));
      worker.Kill();
      // Central starts its own again by itself.
      if (absl::StartsWith(worker.name(), "local")) return;
      return Later(for_ns, [&worker] { worker.Start(); });
    case FaultKind::kFreeze:
      world_.Record(absl::StrCat(worker.name(), " is stopped"));
      worker.SetFrozen(true);
      Later(std::min(kKeepaliveNs, for_ns), [this, &worker] {
        if (worker.frozen()) Break(worker.name());
      });
      return Later(for_ns, [this, &worker] {
        world_.Record(absl::StrCat(worker.name(), " is continued"));
        worker.SetFrozen(false);
      });
    case FaultKind::kPartition:
      return Cut(worker.name(), for_ns);
    case FaultKind::kBreak:
      return Break(worker.name());
    case FaultKind::kDrain:
      // Told twice it would end at once, and take its stage with it.
      if (scenario_.loses_nothing && worker.leaves()) return;
      worker.Leave();
      if (absl::StartsWith(worker.name(), "local")) return;
      return Later(for_ns, [this, &worker] { StartWhenGone(worker); });
    case FaultKind::kCutLink: {
      SimulatedWorker* const other = Draw("any");
      if (other != &worker) CutLink(worker.name(), other->name(), for_ns);
      return;
    }
    case FaultKind::kDiskFull:
    case FaultKind::kDiskRot:
      return;
  }
}

// By whoever keeps it running.
void Simulation::StartWhenGone(SimulatedWorker& worker) {
  constexpr int64_t kLooksEveryNs = 1'000'000'000;
  if (worker.leaves()) return Later(kLooksEveryNs, [this, &worker] { StartWhenGone(worker); });
  worker.Start();
}

void Simulation::CutLink(const std::string& a, const std::string& b, int64_t for_ns) {
  world_.Record(absl::StrCat("nothing passes between ", a, " and ", b));
  world_.network.SetLinkCut(a, b, true);
  Later(std::min(kKeepaliveNs, for_ns), [this, a, b] {
    if (!world_.network.IsLinkCut(a, b)) return;
    world_.network.BreakConnectionsBetween(a, b);
    if (a == kCentralNode) world_.control.BreakConnections(b);
  });
  Later(for_ns, [this, a, b] {
    world_.Record(absl::StrCat(a, " and ", b, " reach each other again"));
    world_.network.SetLinkCut(a, b, false);
    world_.control.Flush();
  });
}

void Simulation::Cut(const std::string& node, int64_t for_ns) {
  if (!world_.cut.insert(node).second) return;
  world_.Record(absl::StrCat(node, " is cut off"));
  world_.network.SetCut(node, true);
  const int cut = ++cuts_;
  if (for_ns > kKeepaliveNs) {
    Later(kKeepaliveNs, [this, node] {
      if (world_.cut.count(node) > 0) Break(node);
    });
  }
  Later(for_ns, [this, node, cut] {
    world_.Record(absl::StrCat(node, " is reached again (", cut, ")"));
    world_.cut.erase(node);
    world_.network.SetCut(node, false);
    world_.control.Flush();
  });
}

void Simulation::Break(const std::string& node) {
  world_.Record(absl::StrCat("the connections of ", node, " break"));
  if (world_.Has(PlantedBug::kDoubleApply)) {
    for (HashEngine* engine : world_.engines) {
      if (engine->reached() > 0) {
        engine->ApplyLastAgain();
        break;
      }
    }
  }
  world_.network.BreakConnections(node);
  world_.control.BreakConnections(node);
}

// ---- the whole

History Simulation::Run() {
  AddWorkers();
  StartCentral();
  ScheduleFaults();
  const auto limit_ns = static_cast<int64_t>(scenario_.liveness_s * kNsPerSecond);
  int64_t events = 0;
  while (world_.violation.empty() && !(central_ != nullptr && central_->finished())) {
    if (!world_.network.Step()) {
      world_.Violate("nothing happens any more, and the run has not ended");
    } else if (pending_ == 0 && world_.now_ns() - healed_ns_ > limit_ns) {
      world_.Violate(absl::StrCat("the faults are over for ", scenario_.liveness_s,
                                  " s, and the run has not ended"));
    } else if (++events > kMostEvents) {
      world_.Violate("too much happens");
    }
  }
  CheckEnd();
  return {world_.violation, world_.digest,     static_cast<double>(world_.now_ns()) / kNsPerSecond,
          world_.losses,    world_.recoveries, world_.moves,
          world_.commits,   happened_,         std::move(world_.log)};
}

void Simulation::CheckEnd() {
  if (!world_.violation.empty()) return;
  const absl::Status& result = central_->result();
  if (result.ok()) return;
  for (const std::string& expected : scenario_.expected_errors) {
    if (absl::StrContains(result.message(), expected)) return;
  }
  world_.Violate(absl::StrCat("the run ends with: ", result.message()));
}

}  // namespace

History RunHistory(const Scenario& scenario, uint64_t seed, PlantedBug bug, bool keeps_log) {
  return Simulation(scenario, seed, bug, keeps_log).Run();
}

}  // namespace runnel
