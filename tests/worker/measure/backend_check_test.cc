// Backends are believed when they compute as `ref`: each that is here does, one that is wrong
// anywhere is found, and verdicts are kept for the same device and build alone.

#include "worker/measure/backend_check.h"

#include <filesystem>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/clock.h"
#include "tests/support/scratch.h"
#include "worker/core/backend_arithmetic.h"
#include "worker/measure/backend_verdicts.h"

namespace runnel::backend_check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// `ref`, but for one bit that a part gets wrong in a storage that it writes.
class WrongBackend final : public Backend {
 public:
  WrongBackend(std::optional<Part> part, Storage storage) : part_(part), storage_(storage) {}

  BackendTraits traits() const override {
    return {.name = "opencl", .numerics_class = "opencl/some device/1.0/widened"};
  }
  std::string description() const override { return device; }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    ++prepared;
    if (!fails.ok()) return fails;
    absl::StatusOr<std::unique_ptr<Executable>> executable = ref_->Prepare(program);
    if (!executable.ok()) return executable.status();
    return std::make_unique<Wrong>(*this, *std::move(executable));
  }

  std::string device = "Some device, driver 1.0";
  absl::Status fails;
  int prepared = 0;

 private:
  class Wrong final : public Executable {
   public:
    Wrong(const WrongBackend& backend, std::unique_ptr<Executable> executable)
        : backend_(backend), executable_(std::move(executable)) {}
    absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
      const absl::Status status = executable_->Run(part, context, bindings);
      if (part == backend_.part_) bindings[backend_.storage_][0] ^= std::byte{1};
      return status;
    }

   private:
    const WrongBackend& backend_;
    const std::unique_ptr<Executable> executable_;
  };

  const std::unique_ptr<Backend> ref_ = MakeBackend("ref", 1).value();
  const std::optional<Part> part_;
  const Storage storage_;
};

WrongBackend RightBackend() { return {std::nullopt, Storage::kOutput}; }
WrongBackend WrongUpdate() { return {Part::kUpdate, Storage::kNewParameters}; }

TEST(BackendCheck, EachBackendThatIsHereComputesAsRefDoes) {
  for (const std::string& name : BackendNames()) {
    auto backend = MakeBackend(name, 1);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const absl::Status checked = CheckBackend(**backend);
    const bool has_no_integers = name == "torch" || name == "small";
    EXPECT_EQ(checked.code(),
              has_no_integers ? absl::StatusCode::kUnimplemented : absl::StatusCode::kOk)
        << name << ": " << checked;
  }
}

TEST(BackendCheck, OneWrongBitIsFound) {
  WrongBackend right = RightBackend();
  EXPECT_TRUE(CheckBackend(right).ok());
  WrongBackend update = WrongUpdate();
  const absl::Status status = CheckBackend(update);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), StartsWith("computes integers wrong: after 2 steps "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("of the convolution's 0.weight is "));
  WrongBackend gradient(Part::kForward, Storage::kMetrics);
  EXPECT_THAT(std::string(CheckBackend(gradient).message()), HasSubstr("the loss of step 1 is"));
  WrongBackend inference(Part::kForwardEval, Storage::kOutput);
  EXPECT_THAT(std::string(CheckBackend(inference).message()),
              StartsWith("computes INT8 inference wrong: logit 0 of sample 0 is "));
}

class BackendVerdictsTest : public ::testing::Test {
 protected:
  int Files() const {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      files += entry.path().extension() == ".verdict" ? 1 : 0;
    return files;
  }

  ScratchDir dir_;
  const BackendVerdicts verdicts_{dir_.path()};
};

TEST_F(BackendVerdictsTest, AreKeptForTheSameDevice) {
  WrongBackend right = RightBackend();
  EXPECT_TRUE(verdicts_.Admit(right).ok());
  const int once = right.prepared;
  EXPECT_GT(once, 0);
  EXPECT_TRUE(BackendVerdicts(dir_.path()).Admit(right).ok());
  EXPECT_EQ(right.prepared, once) << "by what is kept";
  EXPECT_TRUE(verdicts_.CheckAnew(right).ok());
  EXPECT_EQ(right.prepared, 2 * once);
  right.device = "Some device, driver 1.1";
  EXPECT_TRUE(verdicts_.Admit(right).ok());
  EXPECT_EQ(right.prepared, 3 * once) << "another driver";
  EXPECT_EQ(Files(), 2);
  EXPECT_FALSE(verdicts_.HasRefused("opencl"));
}

TEST_F(BackendVerdictsTest, AWrongOneIsRefusedWithItsReasonUntilItIsCheckedAnew) {
  WrongBackend wrong = WrongUpdate();
  const absl::Status first = verdicts_.Admit(wrong);
  EXPECT_EQ(first.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(first.message()),
              AllOf(StartsWith("backend opencl: Some device, driver 1.0 computes integers wrong: "),
                    HasSubstr("`runnel-worker --check`")));
  const int once = wrong.prepared;
  EXPECT_EQ(verdicts_.Admit(wrong), first);
  EXPECT_EQ(wrong.prepared, once);
  EXPECT_TRUE(verdicts_.HasRefused("opencl"));
  EXPECT_FALSE(verdicts_.HasRefused("hexagon"));
  WrongBackend mended = RightBackend();
  EXPECT_EQ(verdicts_.Admit(mended), first);
  EXPECT_TRUE(verdicts_.CheckAnew(mended).ok());
  EXPECT_TRUE(verdicts_.Admit(mended).ok());
  EXPECT_FALSE(verdicts_.HasRefused("opencl"));
}

TEST_F(BackendVerdictsTest, DamagedFilesCountAsAbsent) {
  WrongBackend right = RightBackend();
  ASSERT_TRUE(verdicts_.Admit(right).ok());
  const int once = right.prepared;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
    std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) - 3);
  EXPECT_TRUE(verdicts_.Admit(right).ok());
  EXPECT_EQ(right.prepared, 2 * once);
}

// A device that is gone, or cannot do it at all, has computed nothing wrong.
TEST_F(BackendVerdictsTest, ErrorsAreNoVerdicts) {
  WrongBackend backend = RightBackend();
  backend.fails = MarkLostBackend(absl::UnavailableError("device is lost"), "opencl");
  EXPECT_EQ(LostBackendOf(verdicts_.Admit(backend)), "opencl");
  backend.fails = absl::UnimplementedError("no integers");
  EXPECT_TRUE(verdicts_.Admit(backend).ok());
  EXPECT_EQ(Files(), 0);
  backend.fails = absl::OkStatus();
  EXPECT_TRUE(BackendVerdicts("").Admit(backend).ok());
  EXPECT_EQ(Files(), 0) << "nothing is to be kept";
}

// What was lost is computed by the processors that are left.
TEST(BackendArithmetic, DoesWithoutWhatIsLost) {
  ModelSpec model;
  model.name = "product";
  model.input = {8};
  model.classes = 3;
  model.layers = {{"product", {{.kind = OpKind::kLinear, .inputs = {0}, .out_channels = 3}}}};
  StageExecutorOptions options;
  options.model = model;
  options.training.dataset_samples = options.training.batch_size = 2;
  options.recipe = FindRecipe("niti").value();
  BufferPool pool;
  MonotonicClock clock;
  for (const char* usual : {"ref", "auto"}) {
    BackendArithmetic arithmetic({.backend = usual}, &clock);
    const auto computes = [&](const char* name) {
      EXPECT_TRUE(arithmetic.MakeEngine(name, options, &pool).ok());
      return arithmetic.numerics_class();
    };
    EXPECT_EQ(computes("ref"), "ref");
    EXPECT_THAT(computes("cpu,ref@alternate"), StartsWith("mixed/"));
    arithmetic.DoWithout("ref");
    EXPECT_THAT(computes("ref"), StartsWith("cpu/"));
    EXPECT_THAT(computes("auto"), StartsWith("cpu/"));
    EXPECT_THAT(computes("cpu"), StartsWith("cpu/"));
    EXPECT_THAT(computes("cpu,ref@alternate"), StartsWith("cpu/"));
  }
}

TEST(LostBackend, TheMarkTravelsWithTheStatus) {
  EXPECT_FALSE(LostBackendOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(LostBackendOf(absl::UnavailableError("gone")).has_value());
  const absl::StatusOr<int> marked = MarkLostBackend(absl::UnavailableError("gone"), "hexagon");
  EXPECT_EQ(LostBackendOf(marked.status()), "hexagon");
  EXPECT_EQ(marked.status().message(), "gone");
}

}  // namespace
}  // namespace runnel::backend_check_test
