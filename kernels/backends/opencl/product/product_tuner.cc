#include "kernels/backends/opencl/product/product_tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/opencl/device/tile_families.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

constexpr double kUsualSeconds = 2;
// A tile has to save so much to be taken in place of the rule's.
constexpr double kLeastGain = 0.03;
// The fastest of so many runs counts; of slow ones there are fewer.
constexpr int kTimedRuns = 3;
constexpr double kTimedSeconds = 0.05;
// A run of a fast product has so many copies of it that it takes about this time.
constexpr double kRunSeconds = 5e-3;
constexpr double kMostCopies = 16;
constexpr size_t kMostClassBytes = 200;

bool IsSane(const TuningChoice& choice) {
  const bool is_class = absl::StartsWith(choice.shape_class, "int8 product_") ||
                        absl::StartsWith(choice.shape_class, "fp32 product_");
  return is_class && choice.shape_class.size() <= kMostClassBytes && choice.seconds >= 0 &&
         std::isfinite(choice.seconds) && choice.rule_seconds >= 0 &&
         std::isfinite(choice.rule_seconds);
}

// A sum of n products in any order errs by n roundings of the sum of their magnitudes at most, and
// each term by the rounding of its weight to a half, if it is one.
bool AreClose(const std::vector<std::byte>& got, const std::vector<std::byte>& want,
              const std::vector<std::byte>& magnitudes, int64_t terms, bool has_half_weights) {
  const double bound =
      static_cast<double>(terms + 4) * double{std::numeric_limits<float>::epsilon()} +
      (has_half_weights ? 0x1p-10 : 0);
  const auto value = [](const std::vector<std::byte>& bytes, size_t i) {
    return double{reinterpret_cast<const float*>(bytes.data())[i]};
  };
  for (size_t i = 0; i < want.size() / sizeof(float); ++i) {
    if (!(std::abs(value(got, i) - value(want, i)) <= bound * value(magnitudes, i))) return false;
  }
  return true;
}

}  // namespace

namespace {

// The options that change the kernels, each behind a space: another way, other fastest tiles.
std::string WayOf(const Options& options) {
  std::string way;
  for (const auto& [name, value] : {std::pair("dot", &options.dot),
                                    {"memory", &options.memory},
                                    {"weights", &options.weights},
                                    {"activations", &options.activations}}) {
    if (!value->empty()) absl::StrAppend(&way, " ", name, "=", *value);
  }
  return way;
}

}  // namespace

TuningSubject ProductTuner::subject() const {
  return {"opencl", device_.platform_name,
          absl::StrCat(device_.name, " (", device_.platform_name, ")"), device_.driver,
          absl::StrCat(absl::Hex(KernelSourceHash(), absl::kZeroPad16), WayOf(options_))};
}

double ProductTuner::usual_seconds() const {
  if (options_.tune_seconds >= 0) return options_.tune_seconds;
  // A driver for the host's own processor computes nothing in earnest.
  return (device_.type & CL_DEVICE_TYPE_CPU) != 0 ? 0 : kUsualSeconds;
}

std::vector<TuningChoice> ProductTuner::choices() const {
  std::vector<TuningChoice> all;
  for (const auto& [shape_class, choice] : choices_) all.push_back(choice);
  return all;
}

int ProductTuner::Adopt(const std::vector<TuningChoice>& kept, bool is_checked) {
  int taken = 0;
  for (const TuningChoice& choice : kept) {
    const std::optional<Tile> tile = ParseTile(choice.kernel);
    if (!tile.has_value() || !Fits(*tile, device_) || !IsSane(choice)) continue;
    if (failing_.count(*tile) > 0) continue;
    const bool is_new = is_checked ? choices_.emplace(choice.shape_class, choice).second
                                   : hints_.emplace(choice.shape_class, *tile).second;
    taken += is_new ? 1 : 0;
  }
  return taken;
}

std::string ProductTuner::HungSubject() const {
  return absl::StrCat("tiles that hung\n", DescriptionOf(device_), "\n",
                      absl::Hex(KernelSourceHash()));
}

void ProductTuner::LoadHungTiles() {
  hung_ = ProgramFiles(options_.programs).Load(HungSubject()).value_or("");
  for (const absl::string_view line : absl::StrSplit(hung_, '\n', absl::SkipEmpty())) {
    if (const std::optional<Tile> tile = ParseTile(line); tile.has_value())
      hung_tiles_.insert(*tile);
  }
  failing_.insert(hung_tiles_.begin(), hung_tiles_.end());
}

void ProductTuner::BeginSearch(double seconds, bool anew, Backend* specification) {
  LoadHungTiles();
  left_seconds_ = seconds;
  specification_ = specification;
  anew_ = anew;
  searched_.clear();
}

ChosenTiles ProductTuner::tiles() const {
  ChosenTiles tiles;
  for (const auto& [shape_class, choice] : choices_) tiles[shape_class] = *ParseTile(choice.kernel);
  return tiles;
}

std::vector<ProductTuner::Candidate> ProductTuner::CandidatesOf(const Program& program) const {
  std::map<std::string, Candidate> by_class;
  for (const auto& part : program.parts) {
    const bool is_trained = &part != &program.part(Part::kForwardEval);
    for (const Instruction& instruction : part) {
      if (!IsProduct(instruction.code)) continue;
      const ProductPlan plan = PlanProduct(program, instruction, device_, {});
      if (plan.is_depthwise || plan.is_winograd) continue;
      if (searched_.count(plan.shape_class) > 0) continue;
      if (!anew_ && choices_.count(plan.shape_class) > 0) continue;
      Candidate& candidate = by_class[plan.shape_class];
      // The largest one stands for its class.
      if (candidate.plan.kernel == nullptr || plan.macs() > candidate.plan.macs()) {
        candidate.instruction = instruction;
        candidate.plan = plan;
      }
      candidate.uses += is_trained ? 1 : 0;
    }
  }
  std::vector<Candidate> candidates;
  for (auto& [shape_class, candidate] : by_class) candidates.push_back(std::move(candidate));
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.uses * a.plan.macs() > b.uses * b.plan.macs();
  });
  return candidates;
}

void ProductTuner::Search(const Program& program) {
  if (left_seconds_ <= 0 || !options_.tile.empty()) return;
  const int64_t begin = clock_->NowNanos();
  const int64_t end = begin + static_cast<int64_t>(left_seconds_ * 1e9);
  last_nanos_ = begin + static_cast<int64_t>(std::min(kPatience * left_seconds_, 1e9) * 1e9);
  const std::vector<Candidate> candidates = CandidatesOf(program);
  auto classes_left = static_cast<int64_t>(candidates.size());
  for (const Candidate& candidate : candidates) {
    const int64_t now = clock_->NowNanos();
    if (now >= last_nanos_ || !OpenBench().ok()) break;
    end_nanos_ = now + std::max<int64_t>(end - now, 0) / classes_left--;
    SearchClass(program, candidate);
    searched_.insert(candidate.plan.shape_class);
  }
  bench_ = Bench();
  left_seconds_ -= static_cast<double>(clock_->NowNanos() - begin) * 1e-9;
}

absl::Status ProductTuner::OpenBench() {
  if (bench_.session != nullptr && bench_.session->lost().ok()) return absl::OkStatus();
  bench_ = Bench();
  RUNNEL_ASSIGN_OR_RETURN(bench_.session, Session::Open(options_, budget_));
  bench_.backend = MakeBackendOn(bench_.session);
  return absl::OkStatus();
}

std::optional<Tile> ProductTuner::FirstTileOf(const ProductPlan& plan) const {
  for (const Tile& tile : TilesInPlaceOf(plan.tile)) {
    if (failing_.count(tile) == 0) return tile;
  }
  return std::nullopt;
}

std::vector<Tile> ProductTuner::TilesFor(const ProductPlan& plan) const {
  std::vector<Tile> tiles = {plan.tile};
  const auto hint = hints_.find(plan.shape_class);
  if (hint != hints_.end()) tiles.push_back(hint->second);
  const auto sizes = bench_.session->GroupSizesOf(
      {ProgramId::Source::kProduct, plan.is_float, plan.tile}, plan.kernel);
  const std::vector<Tile> all = TilesInOrder(device_, sizes.ok() ? sizes->multiple : 0);
  tiles.insert(tiles.end(), all.begin(), all.end());
  std::vector<Tile> unique;
  for (const Tile& tile : tiles) {
    if (!Fits(tile, device_) || failing_.count(tile) > 0) continue;
    if (tile.image && !plan.reads_weight) continue;
    if (std::find(unique.begin(), unique.end(), tile) == unique.end()) unique.push_back(tile);
  }
  return unique;
}

absl::StatusOr<ProductTuner::Sample> ProductTuner::RunTile(const LoneProduct& product,
                                                           Memory& operands, const Tile& tile,
                                                           int timed_runs) {
  bench_.session->chosen_tiles() = {{kEveryClass, tile}};
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                          bench_.backend->Prepare(product.program));
  const Instruction& instruction = product.program.part(Part::kForward)[0];
  const ProductPlan plan = PlanProduct(product.program, instruction, device_, {});
  const Session::KernelId kernel = {{ProgramId::Source::kProduct, plan.is_float, tile},
                                    plan.kernel};
  if (bench_.session->too_large_kernels().count(kernel) > 0)
    return absl::FailedPreconditionError("its groups are too large");
  RUNNEL_RETURN_IF_ERROR(SpoilOutput(product, operands));
  // A driver that hangs ends with its process: the next start has to know of which tile.
  bench_.session->watch().BeforeEnd(
      [files = ProgramFiles(options_.programs), about = HungSubject(),
       all = absl::StrCat(hung_, ToText(tile), "\n")] { files.Keep(about, all); });
  const absl::Cleanup forget = [session = bench_.session] { session->watch().BeforeEnd(nullptr); };
  RUNNEL_RETURN_IF_ERROR(RunProduct(*executable, operands));
  Sample sample;
  RUNNEL_ASSIGN_OR_RETURN(sample.bytes, ReadOutput(product, operands));
  const double copies = static_cast<double>(product.program.part(Part::kForward).size() - 1);
  sample.seconds = std::numeric_limits<double>::max();
  double all = 0;
  for (int run = 0; run < timed_runs && all < kTimedSeconds; ++run) {
    const int64_t begin = clock_->NowNanos();
    RUNNEL_RETURN_IF_ERROR(RunProduct(*executable, operands));
    const double seconds = static_cast<double>(clock_->NowNanos() - begin) * 1e-9;
    sample.seconds = std::min(sample.seconds, seconds / copies);
    all += seconds;
  }
  return sample;
}

absl::StatusOr<std::vector<std::byte>> ProductTuner::Expected(const LoneProduct& product,
                                                              bool magnitudes) {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> operands,
                          MakeOperands(product, *specification_, magnitudes));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                          specification_->Prepare(product.program));
  RUNNEL_RETURN_IF_ERROR(RunProduct(*executable, *operands));
  return ReadOutput(product, *operands);
}

absl::Status ProductTuner::CheckSmall(const LoneProduct& small, const ProductPlan& plan,
                                      const Tile& tile) {
  RUNNEL_ASSIGN_OR_RETURN(const auto want, Expected(small, /*magnitudes=*/false));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> operands,
                          MakeOperands(small, *bench_.backend, /*magnitudes=*/false));
  RUNNEL_ASSIGN_OR_RETURN(const Sample got, RunTile(small, *operands, tile, /*timed_runs=*/0));
  bool is_right = got.bytes == want;
  if (plan.is_float) {
    RUNNEL_ASSIGN_OR_RETURN(const auto magnitudes, Expected(small, /*magnitudes=*/true));
    const Instruction& instruction = small.program.part(Part::kForward)[0];
    const ProductPlan sizes = PlanProduct(small.program, instruction, device_, {});
    is_right = AreClose(got.bytes, want, magnitudes, sizes.plan.depth,
                        bench_.session->has_half_weights() && ReadsFloatWeight(instruction.code));
  }
  if (is_right) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("tile ", ToText(tile), " computes wrong"));
}

void ProductTuner::SearchClass(const Program& program, const Candidate& candidate) {
  const std::optional<Tile> first = FirstTileOf(candidate.plan);
  if (!first.has_value()) return;
  ProductPlan plan = candidate.plan;
  plan.tile = *first;
  const LoneProduct small = TakeSmallProduct(program, candidate.instruction);
  LoneProduct large = TakeProduct(program, candidate.instruction, 1);
  std::unique_ptr<Memory> operands;
  const auto try_tile = [&](const Tile& tile) -> absl::StatusOr<Sample> {
    RUNNEL_RETURN_IF_ERROR(CheckSmall(small, plan, tile));
    if (operands == nullptr) {
      RUNNEL_ASSIGN_OR_RETURN(operands, MakeOperands(large, *bench_.backend, false));
    }
    return RunTile(large, *operands, tile, kTimedRuns);
  };
  absl::StatusOr<Sample> by_rule = try_tile(plan.tile);
  if (!by_rule.ok()) return;
  const std::vector<Tile> tiles = TilesFor(plan);
  if (tiles.empty() || tiles[0] != plan.tile) return;
  const double copies = kRunSeconds / std::max(by_rule->seconds, 1e-7);
  if (copies >= 2) {
    large = TakeProduct(program, candidate.instruction,
                        static_cast<int>(std::min(copies, kMostCopies)));
    by_rule = RunTile(large, *operands, plan.tile, kTimedRuns);
    if (!by_rule.ok()) return;
  }
  TuningChoice choice = {plan.shape_class, ToText(plan.tile), by_rule->seconds, by_rule->seconds, 1,
                         candidate.uses};
  for (size_t i = 1; i < tiles.size(); ++i) {
    const int64_t now = clock_->NowNanos();
    if (now >= (i < kLeastTiles ? last_nanos_ : end_nanos_)) break;
    const absl::StatusOr<Sample> sample = try_tile(tiles[i]);
    if (!bench_.session->lost().ok()) {
      failing_.insert(tiles[i]);
      operands.reset();
      if (!OpenBench().ok()) break;
    }
    if (!sample.ok() || sample->bytes != by_rule->bytes) continue;
    ++choice.tried;
    const bool pays = sample->seconds < choice.rule_seconds * (1 - kLeastGain);
    if (!pays || sample->seconds >= choice.seconds) continue;
    choice.seconds = sample->seconds;
    choice.kernel = ToText(tiles[i]);
  }
  choices_[plan.shape_class] = std::move(choice);
}

}  // namespace runnel::opencl
