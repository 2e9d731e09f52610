#include "kernels/backends/mixed/mixed_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/mixed/home_memory.h"
#include "kernels/backends/mixed/instruction_costs.h"
#include "kernels/backends/mixed/mixed_executable.h"
#include "kernels/backends/mixed/platform.h"
#include "kernels/backends/mixed/processors.h"
#include "kernels/ir/co_scheduler/backward_schedule.h"
#include "kernels/ir/co_scheduler/segments.h"
#include "kernels/ir/co_scheduler/value_flow.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Names on the wire are not longer than 256.
constexpr size_t kMostClassBytes = 200;

class MixedBackend final : public CoScheduler {
 public:
  MixedBackend(std::vector<std::unique_ptr<Backend>> processors, AssignmentRule rule,
               MixedOptions options)
      : platform_(std::make_shared<Platform>(std::move(processors))),
        processors_(platform_->processors),
        rule_(std::move(rule)),
        options_(std::move(options)) {
    for (int p = 0; p < static_cast<int>(processors_.size()); ++p)
      costs_.push_back(std::make_unique<InstructionCosts>(platform_, p, &clock_));
  }

  BackendTraits traits() const override {
    BackendTraits traits = platform_->traits[0];
    traits.name = "mixed";
    // Its processors have their instructions apart, and pack no constants.
    traits.codes_in_products = false;
    if (processors_.size() == 1) return traits;
    traits.numerics_class = JointClass();
    // Copies of what is made again would cost more than the making.
    traits.recomputes = false;
    traits.takes_slices = false;
    // Bits of a mask stand as the values of who made it lie.
    traits.masks_stash = false;
    for (const BackendTraits& processor : platform_->traits) {
      // Where only some have such products, the others would get none at all.
      traits.rescales_in_products &= processor.rescales_in_products;
      traits.multiplies_codes &= processor.multiplies_codes;
      // Processors read each other's values.
      if (processor.stash != traits.stash) traits.stash = DType::kFloat32;
      traits.narrows_stash &= processor.narrows_stash;
      traits.shifts_slices &= processor.shifts_slices;
    }
    return traits;
  }

  std::string description() const override {
    std::vector<std::string> devices;
    for (const auto& processor : processors_) {
      devices.push_back(
          absl::StrCat(std::string(processor->name()), " on ", processor->description()));
    }
    return absl::StrJoin(devices, "; ");
  }

  std::vector<std::string> processor_names() const override {
    std::vector<std::string> names;
    for (const auto& processor : processors_) names.emplace_back(processor->name());
    return names;
  }

  std::vector<ProcessorEnergy> processor_energies() const override {
    std::vector<ProcessorEnergy> energies;
    for (const auto& processor : processors_) energies.push_back(processor->energy());
    return energies;
  }

  // The tuner of the first processor that has one.
  Tuner* tuner() override {
    for (const auto& processor : processors_) {
      if (processor->tuner() != nullptr) return processor->tuner();
    }
    return nullptr;
  }

  Moved moved() const override {
    const Traffic& traffic = platform_->traffic;
    return {traffic.bytes_to_processors, traffic.bytes_from_processors, traffic.segments};
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    // The versions live as long as the platform.
    return AllocateHome(*processors_[0], {platform_, &platform_->versions}, bytes);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    if (HasGates(program)) {
      return absl::UnimplementedError(absl::StrCat("backend ", traits().name,
                                                   ": gates choose samples on one processor alone; "
                                                   "take --backend cpu"));
    }
    RUNNEL_ASSIGN_OR_RETURN(const ProgramSchedule schedule, Schedule(program));
    const Assignment assignment = schedule.assignment();
    const bool is_hosts =
        std::all_of(assignment.begin(), assignment.end(), [](const std::vector<int>& part) {
          return std::all_of(part.begin(), part.end(), [](int p) { return p == 0; });
        });
    if (is_hosts) return processors_[0]->Prepare(program);
    RUNNEL_ASSIGN_OR_RETURN(const ProgramFlow flow, FollowValues(program));
    return PrepareSegments(
        CutIntoSegments(program, flow, assignment, schedule.grouping, platform_->keeps_values),
        platform_);
  }

  absl::StatusOr<ProgramSchedule> Schedule(const Program& program) override {
    platform_->lanes.WaitIdle();
    RUNNEL_ASSIGN_OR_RETURN(const ProgramFlow flow, FollowValues(program));
    // Costs decide nothing where a rule does.
    const bool may_time = IsExact(program) && !rule_.is_set() && !options_.counts;
    for (const auto& costs : costs_) costs->BeginProgram();
    RUNNEL_ASSIGN_OR_RETURN(const auto switches, Switches(may_time));
    ProgramSchedule schedule;
    for (const BackendTraits& processor : platform_->traits) {
      schedule.processors.emplace_back(processor.name);
      const bool timed = may_time && processor.rates.is_timed;
      schedule.sources.push_back(
          absl::StrCat(processor.name, timed ? " (measured)" : " (counted)"));
    }
    for (int i = 0; i < kPartCount; ++i) {
      const auto part = static_cast<Part>(i);
      RUNNEL_ASSIGN_OR_RETURN(auto seconds, SecondsOf(program, part, may_time));
      const Assignment assignment = schedule.assignment();
      const InstructionChain chain = MakeChain(program, flow, {assignment, platform_->keeps_values},
                                               part, std::move(seconds), switches);
      RUNNEL_ASSIGN_OR_RETURN(const ChainSchedule best, ScheduleChain(chain));
      if (rule_.is_set()) {
        FillCosts(chain, rule_.Choose(program.part(part), chain), part, schedule);
      } else if (part == Part::kWeightGradient) {
        ScheduleWeightGradients(flow, chain, best.processors, schedule);
      } else {
        FillCosts(chain, best.processors, part, schedule);
      }
    }
    return schedule;
  }

 private:
  std::string JointClass() const {
    std::vector<std::string> classes;
    for (const BackendTraits& processor : platform_->traits)
      classes.push_back(processor.numerics_class);
    std::string name =
        absl::StrCat("mixed/", absl::StrJoin(classes, "+"), "/",
                     rule_.is_set() ? options_.rule : absl::StrCat("counted", kCountedRule));
    if (name.size() > kMostClassBytes) {
      // FNV-1a: the same everywhere.
      uint64_t digest = 0xcbf29ce484222325u;
      for (const char c : name) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
      name.resize(kMostClassBytes - 17);
      absl::StrAppend(&name, "/", absl::Hex(digest, absl::kZeroPad16));
    }
    return name;
  }

  // [instruction][processor]
  absl::StatusOr<std::vector<std::vector<double>>> SecondsOf(const Program& program, Part part,
                                                             bool may_time) {
    std::vector<std::vector<double>> seconds;
    for (const Instruction& instruction : program.part(part)) {
      std::vector<double>& row = seconds.emplace_back();
      for (const auto& costs : costs_) {
        RUNNEL_ASSIGN_OR_RETURN(const double one,
                                costs->SecondsOf(program, part, instruction, may_time));
        row.push_back(one);
      }
      if (std::any_of(row.begin(), row.end(), [](double one) { return one < kUnsupported; }))
        continue;
      return absl::UnimplementedError(absl::StrCat(
          "none of ", absl::StrJoin(processor_names(), ", "), " has ", Name(instruction.code),
          " (layer ", instruction.layer, ", op ", instruction.op, ")"));
    }
    return seconds;
  }

  // A value goes from one processor to another by way of the host.
  absl::StatusOr<std::vector<std::vector<SwitchCost>>> Switches(bool may_time) {
    std::vector<SwitchCost> from_host;
    for (const auto& costs : costs_) {
      RUNNEL_ASSIGN_OR_RETURN(SwitchCost cost, costs->SwitchFromHost(may_time));
      const auto& name = processors_[from_host.size()]->name();
      const auto given = options_.switch_seconds.find(std::string(name));
      if (given != options_.switch_seconds.end()) cost.seconds = given->second;
      from_host.push_back(cost);
    }
    std::vector<std::vector<SwitchCost>> switches;
    for (const SwitchCost& from : from_host) {
      std::vector<SwitchCost>& row = switches.emplace_back();
      for (const SwitchCost& to : from_host) {
        row.push_back({from.seconds + to.seconds, from.seconds_per_byte + to.seconds_per_byte});
      }
    }
    return switches;
  }

  const MonotonicClock clock_;
  const std::shared_ptr<Platform> platform_;
  const std::vector<std::unique_ptr<Backend>>& processors_;  // the platform's
  const AssignmentRule rule_;
  const MixedOptions options_;
  std::vector<std::unique_ptr<InstructionCosts>> costs_;  // by processor
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoScheduler>> MakeCoScheduler(
    std::vector<std::unique_ptr<Backend>> processors, MixedOptions options) {
  if (processors.empty()) return absl::InvalidArgumentError("there is no processor");
  std::vector<std::string> names;
  for (const auto& processor : processors) names.emplace_back(processor->name());
  for (const auto& [name, seconds] : options.switch_seconds) {
    if (std::find(names.begin() + 1, names.end(), name) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a switch to '", name, "', which is no processor beside the host's ", names[0]));
  }
  RUNNEL_ASSIGN_OR_RETURN(AssignmentRule rule, AssignmentRule::Parse(options.rule, names));
  return std::make_unique<MixedBackend>(std::move(processors), std::move(rule), std::move(options));
}

std::vector<std::string> ProcessorsOf(absl::string_view names) {
  return absl::StrSplit(names.substr(0, names.find('@')), ',');
}

}  // namespace runnel
