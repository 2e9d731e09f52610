#include "tests/kernels/grouped_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/mixed/mixed_executable.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kProcessors = 3;

class GroupedBackend final : public Backend {
 public:
  GroupedBackend(std::vector<std::unique_ptr<Backend>> processors, uint64_t seed)
      : platform_(std::make_shared<Platform>(std::move(processors))), seed_(seed) {}

  BackendTraits traits() const override {
    return {.name = "grouped", .numerics_class = absl::StrCat("grouped/", seed_)};
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_ASSIGN_OR_RETURN(const ProgramFlow flow, FollowValues(program));
    Assignment assignment;
    Grouping grouping;
    uint64_t drawn = 0;
    const CounterRandom random(seed_, RandomPurpose::kTest, 3, 3);
    const auto below = [&](int limit) {
      return static_cast<int>(random.Below(drawn++, static_cast<uint32_t>(limit)));
    };
    for (size_t part = 0; part < kPartCount; ++part) {
      const int groups = 1 + below(4);
      int processor = 0, group = 0;
      for (size_t i = 0; i < program.parts[part].size(); ++i) {
        if (below(2) == 0) processor = below(kProcessors);
        if (below(2) == 0) group = below(groups);
        assignment[part].push_back(processor);
        grouping[part].push_back(group);
      }
    }
    return PrepareSegments(
        CutIntoSegments(program, flow, assignment, grouping, platform_->keeps_values), platform_);
  }

 private:
  const std::shared_ptr<Platform> platform_;
  const uint64_t seed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeGroupedBackend(uint64_t seed) {
  std::vector<std::unique_ptr<Backend>> processors;
  for (const char* name : {"cpu", "ref", "ref"}) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> one, MakeBackend(name, 1));
    processors.push_back(std::move(one));
  }
  return std::make_unique<GroupedBackend>(std::move(processors), seed);
}

}  // namespace runnel
