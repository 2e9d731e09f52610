#include "kernels/backends/small/product_tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/backends/measure/lone_instruction.h"
#include "proto/base/host/processor_time.h"

namespace runnel::small {
namespace {

// A choice has to save so much to be taken in place of another.
constexpr double kLeastGain = 0.03;
// The fastest of so many runs counts.
constexpr int kTimedRuns = 3;
constexpr size_t kMostClassBytes = 200;

bool IsSane(const TuningChoice& choice) {
  const bool is_class = absl::StrContains(choice.shape_class, " product_");
  return is_class && choice.shape_class.size() <= kMostClassBytes && choice.seconds >= 0 &&
         std::isfinite(choice.seconds) && choice.rule_seconds >= 0 &&
         std::isfinite(choice.rule_seconds) && ParseChoice(choice.kernel).has_value();
}

// Other tiles than the one that moves the fewest bytes.
std::vector<TileSize> Neighbours(const TileSize& tile) {
  std::vector<TileSize> tiles;
  const auto half = [](int32_t whole) { return std::max((whole + 1) / 2, 1); };
  tiles.push_back({half(tile.rows), tile.columns, tile.outs, tile.chunk});
  tiles.push_back({tile.rows, tile.columns, half(tile.outs), tile.chunk});
  tiles.push_back({half(half(tile.rows)), tile.columns, tile.outs, tile.chunk});
  tiles.push_back({tile.rows * 2, tile.columns, half(tile.outs), tile.chunk});
  tiles.push_back({half(tile.rows), tile.columns, tile.outs * 2, tile.chunk});
  return tiles;
}

}  // namespace

bool Fits(const ProductShape& shape, const ProductChoice& choice, int64_t l1_bytes) {
  const TileSize& tile = choice.tile;
  const Plane& walked = shape.positions();
  const std::vector<std::string> names = KernelNames(shape.is_half);
  // Sums over positions have whole rows, or parts of one, so that these ascend.
  const bool ascends =
      shape.step != Step::kWeightGradient || tile.rows == 1 || tile.columns == walked.w;
  return ascends && std::find(names.begin(), names.end(), choice.kernel) != names.end() &&
         tile.rows <= walked.h && tile.columns <= walked.w && tile.outs <= walked.c &&
         tile.chunk <= shape.source().c && BytesOf(shape, choice.way, tile).total() <= l1_bytes;
}

// A product alone, with operands of its own.
class ProductTuner::Trial {
 public:
  Trial(const Program& program, const Candidate& candidate, NearMemory l1)
      : alone_(Alone(program, candidate.part, candidate.instruction)),
        shape_(candidate.shape),
        l1_(l1) {
    alone_.values = program.values;
    auto around = Surround(alone_);
    if (around.ok()) around_ = std::make_unique<Surroundings>(*std::move(around));
    instruction_ = &alone_.parts[static_cast<size_t>(candidate.part)][0];
  }

  // The least seconds of a few runs; infinite if it does not run, or not with the bytes of the
  // first choice.
  double Seconds(const ProductChoice& choice) {
    double least = std::numeric_limits<double>::infinity();
    if (around_ == nullptr || !Fits(shape_, choice, l1_.bytes)) return least;
    const StepContext context;
    const host::Call call(alone_, *instruction_, context, around_->bindings);
    for (int run = 0; run < kTimedRuns; ++run) {
      // Of this thread's processor: other work on the device chooses no kernel.
      const int64_t begin = ThreadProcessorNs();
      if (!RunProduct(call, shape_, choice, l1_).ok())
        return std::numeric_limits<double>::infinity();
      least = std::min(least, static_cast<double>(ThreadProcessorNs() - begin) * 1e-9);
    }
    const auto* output = call.out<std::byte>(0);
    const std::vector<std::byte> bytes(output, output + call.out_bytes(0));
    if (expected_.empty()) expected_ = bytes;
    ++tried_;
    return bytes == expected_ ? least : std::numeric_limits<double>::infinity();
  }
  int tried() const { return tried_; }

 private:
  Program alone_;
  const ProductShape& shape_;
  const NearMemory l1_;
  const Instruction* instruction_ = nullptr;
  std::unique_ptr<Surroundings> around_;
  std::vector<std::byte> expected_;
  int tried_ = 0;
};

TuningSubject ProductTuner::subject() const {
  return {"small", "host", "the host's processor", "none",
          absl::StrCat("rule1 l1 ", l1_bytes_ / 1024, " KiB ", kFuses ? "fused" : "rounded")};
}

std::vector<TuningChoice> ProductTuner::choices() const {
  std::vector<TuningChoice> all;
  for (const auto& [shape_class, choice] : choices_) all.push_back(choice);
  return all;
}

int ProductTuner::Adopt(const std::vector<TuningChoice>& kept, bool is_checked) {
  int taken = 0;
  for (const TuningChoice& choice : kept) {
    if (!IsSane(choice)) continue;
    const bool is_new = is_checked ? choices_.emplace(choice.shape_class, choice).second
                                   : hints_.emplace(choice.shape_class, choice.kernel).second;
    taken += is_new ? 1 : 0;
  }
  return taken;
}

// No driver and no compiler stands between the rule's bytes and the conformance suites, so that these
// bytes are the specification here.
void ProductTuner::BeginSearch(double seconds, bool anew, Backend* /*specification*/) {
  left_seconds_ = seconds;
  anew_ = anew;
}

ProductChoice ProductTuner::ChoiceFor(const ProductShape& shape) const {
  const auto found = choices_.find(ClassOf(shape));
  if (found != choices_.end()) {
    const std::optional<ProductChoice> choice = ParseChoice(found->second.kernel);
    if (choice.has_value() && Fits(shape, *choice, l1_bytes_)) return *choice;
  }
  return RuleFor(shape, l1_bytes_);
}

std::vector<ProductTuner::Candidate> ProductTuner::CandidatesOf(const Program& program) const {
  std::map<std::string, Candidate> by_class;
  for (int part = 0; part < kPartCount; ++part) {
    for (const Instruction& instruction : program.parts[static_cast<size_t>(part)]) {
      if (!IsProduct(instruction.code)) continue;
      const ProductShape shape = ShapeOf(program, instruction, sums_);
      const std::string name = ClassOf(shape);
      if (!anew_ && choices_.count(name) > 0) continue;
      Candidate& candidate = by_class[name];
      if (candidate.uses == 0) candidate = {static_cast<Part>(part), instruction, shape, 0};
      ++candidate.uses;
    }
  }
  std::vector<Candidate> candidates;
  for (auto& [name, candidate] : by_class) candidates.push_back(std::move(candidate));
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.uses * a.shape.macs() > b.uses * b.shape.macs();
  });
  return candidates;
}

void ProductTuner::Search(const Program& program, NearMemory l1) {
  if (left_seconds_ <= 0) return;
  const int64_t begin = clock_.NowNanos();
  const int64_t end = begin + static_cast<int64_t>(left_seconds_ * 1e9);
  const std::vector<Candidate> candidates = CandidatesOf(program);
  auto classes_left = static_cast<int64_t>(candidates.size());
  for (const Candidate& candidate : candidates) {
    const int64_t now = clock_.NowNanos();
    if (now >= end) break;
    end_nanos_ = now + (end - now) / classes_left--;
    SearchClass(program, candidate, l1);
  }
  left_seconds_ -= static_cast<double>(clock_.NowNanos() - begin) * 1e-9;
}

// First the kernel, then the order of the operands, then the tile.
void ProductTuner::SearchClass(const Program& program, const Candidate& candidate, NearMemory l1) {
  const ProductShape& shape = candidate.shape;
  Trial trial(program, candidate, l1);
  ProductChoice best = RuleFor(shape, l1_bytes_);
  const double rule_seconds = trial.Seconds(best);
  if (!std::isfinite(rule_seconds)) return;
  double least = rule_seconds;
  const auto consider = [&](const ProductChoice& choice) {
    if (clock_.NowNanos() >= end_nanos_) return;
    const double seconds = trial.Seconds(choice);
    if (seconds >= least * (1 - kLeastGain)) return;
    least = seconds;
    best = choice;
  };
  const std::string name = ClassOf(shape);
  if (const auto hint = hints_.find(name); hint != hints_.end()) {
    if (const auto choice = ParseChoice(hint->second); choice.has_value()) consider(*choice);
  }
  for (const std::string& kernel : KernelNames(shape.is_half)) {
    ProductChoice choice = RuleFor(shape, l1_bytes_);
    choice.kernel = kernel;
    consider(choice);
  }
  if (!IsDepthwise(shape)) {
    const ProductChoice of_kernel = best;
    for (const Way way :
         {Way{Layout::kHwc, true}, Way{Layout::kChw, false}, Way{Layout::kChw, true}})
      consider({way, of_kernel.kernel, TileWithin(shape, way, l1_bytes_)});
  }
  const ProductChoice of_way = best;
  for (const TileSize& tile : Neighbours(of_way.tile)) consider({of_way.way, of_way.kernel, tile});
  // What won once by chance does not win twice.
  if (const ProductChoice rule = RuleFor(shape, l1_bytes_); best != rule) {
    const double again = trial.Seconds(rule);
    least = trial.Seconds(best);
    if (least >= again * (1 - kLeastGain)) {
      best = rule;
      least = std::min(again, rule_seconds);
    }
    least = std::min(least, rule_seconds);
  }
  choices_[name] = {name, ToString(best), least, rule_seconds, trial.tried(), candidate.uses};
}

}  // namespace runnel::small
