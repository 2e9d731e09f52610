// A worker that has too little memory, or whose state is too large for a message, says so to
// central and stays.

#include "worker/out_of_memory.h"

#include <new>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "tests/support/in_process/loopback.h"
#include "tests/support/in_process/loopback_control.h"
#include "tests/transport/control_recorders.h"
#include "worker/core/backend_arithmetic.h"
#include "worker/core/worker_core.h"

namespace runnel::out_of_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WithinMemory, GivesTheResultOrSaysWhatFoundNoMemory) {
  EXPECT_EQ(*WithinMemory("it slept", [] { return absl::StatusOr<int>(3); }), 3);
  const absl::StatusOr<int> none =
      WithinMemory("it slept", []() -> absl::StatusOr<int> { throw std::bad_alloc(); });
  EXPECT_EQ(none.status(), absl::ResourceExhaustedError("out of memory while it slept"));
}

// The real backends, on a device that has no memory as long as the test says so.
class HungryArithmetic final : public DeviceArithmetic {
 public:
  explicit HungryArithmetic(const Clock* clock) : real_({.backend = "ref"}, clock) {}
  absl::Status Prepare() override { return real_.Prepare(); }
  void DoWithout(const std::string& backend) override { real_.DoWithout(backend); }
  std::string numerics_class() const override { return real_.numerics_class(); }
  absl::StatusOr<std::vector<RangeTime>> Profile(const ProfileRequest&, const ProfileOptions&,
                                                 const std::function<void(double)>&) override {
    throw std::bad_alloc();
  }
  absl::StatusOr<ProgramListing> List(const ProgramRequest& request) override {
    return real_.List(request);
  }
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(const std::string& backend,
                                                          const StageExecutorOptions& options,
                                                          BufferPool* pool) override {
    if (has_none) throw std::bad_alloc();
    return real_.MakeEngine(backend, options, pool);
  }

  std::atomic<bool> has_none = true;

 private:
  BackendArithmetic real_;
};

// A stream for which every state is too large.
class NarrowControl final : public ControlTransport {
 public:
  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(
      const std::string& address, CentralControlObserver* observer) override {
    return wide_.Listen(address, observer);
  }
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override {
    auto wide = wide_.Connect(address, timeout_ms, observer);
    if (!wide.ok()) return wide.status();
    return std::make_unique<Stream>(*std::move(wide));
  }

 private:
  class Stream final : public WorkerControl {
   public:
    explicit Stream(std::unique_ptr<WorkerControl> wide) : wide_(std::move(wide)) {}
    absl::Status Send(WorkerMessage message) override {
      if (std::holds_alternative<Snapshot>(message) ||
          std::holds_alternative<LayersFetched>(message))
        return absl::ResourceExhaustedError("control message: 7 bytes are over 6");
      return wide_->Send(std::move(message));
    }
    absl::StatusOr<std::string> LocalHost() const override { return wide_->LocalHost(); }
    void Close() override { wide_->Close(); }

   private:
    std::unique_ptr<WorkerControl> wide_;
  };

  LoopbackControl wide_;
};

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    WorkerOptions options;
    options.central_address = central_->address();
    options.name = "w";
    core_ = std::make_unique<WorkerCore>(
        options, WorkerCore::Parts{&loop_, transport_.get(), &control_, &logger_, nullptr,
                                   &arithmetic_, nullptr});
    EXPECT_TRUE(core_
                    ->Start([this](const absl::Status& status) {
                      result_ = status;
                      loop_.Stop();
                    })
                    .ok());
    thread_ = std::thread([this] { loop_.Run(); });
    id_ = seen_.WaitForJoined(1).value_or(ConnectionId());
  }
  // That it goes on to answer, until central releases it, shows that it stays.
  ~OutOfMemoryTest() override {
    EXPECT_TRUE(central_->Send(id_, Release{}).ok());
    thread_.join();
    EXPECT_TRUE(result_.ok()) << result_;
    core_.reset();
  }

  template <typename Answer>
  Answer Ask(CentralMessage message) {
    size_t at = seen_.messages(id_).size();
    EXPECT_TRUE(central_->Send(id_, std::move(message)).ok());
    for (; seen_.WaitForMessages(id_, at + 1); ++at) {
      const std::vector<WorkerMessage> messages = seen_.messages(id_);
      if (const auto* answer = std::get_if<Answer>(&messages[at])) return *answer;
    }
    ADD_FAILURE() << "no answer";
    return Answer();
  }
  PrepareStage WholeModel(int32_t generation) const {
    PrepareStage stage;
    stage.model = model_;
    stage.plan.generation = Generation(generation);
    stage.plan.stages.push_back({{Seat{DeviceId(0)}}, 0, model_.layer_count() - 1, 1});
    stage.training.dataset_samples = 100;
    stage.training.batch_size = 4;
    stage.recipe = "fp32";
    stage.backend = "ref";
    stage.link_token = "t";
    stage.draws_state = true;
    return stage;
  }

  ModelSpec model_ = MakeModel("lenet").value();
  MonotonicClock clock_;
  NullLogger logger_;
  ThreadLoop loop_{&clock_};
  HungryArithmetic arithmetic_{&clock_};
  CentralRecorder seen_;
  NarrowControl control_;
  const std::unique_ptr<Transport> transport_ = MakeLoopbackTransport();
  const std::unique_ptr<CentralControl> central_ = control_.Listen("127.0.0.1:0", &seen_).value();
  std::unique_ptr<WorkerCore> core_;
  std::thread thread_;
  absl::Status result_;
  ConnectionId id_;
};

TEST_F(OutOfMemoryTest, ReachesCentralWithTheReasonAndTheFix) {
  const auto failed = Ask<StageFailed>(WholeModel(3));
  EXPECT_EQ(failed.generation, Generation(3));
  EXPECT_FALSE(failed.unfit);
  EXPECT_THAT(failed.reason, AllOf(HasSubstr("out of memory while it prepared its stage: give it"),
                                   HasSubstr("--memory-mb"), HasSubstr("--batch-size")));
  ProfileRequest request;
  request.model = model_;
  request.recipe = "fp32";
  request.backend = "ref";
  request.micro_batch_size = request.repetitions = 1;
  EXPECT_THAT(Ask<ProfileFailed>(request).reason,
              AllOf(HasSubstr("out of memory while it measured layers"), HasSubstr("--memory-mb")));
  // With less to hold it goes on.
  arithmetic_.has_none = false;
  EXPECT_EQ(Ask<StagePrepared>(WholeModel(4)).generation, Generation(4));
}

TEST_F(OutOfMemoryTest, AStateThatIsTooLargeForAMessageReachesCentralAsAReason) {
  arithmetic_.has_none = false;
  Ask<StagePrepared>(WholeModel(3));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  const auto fetching = Ask<StageFailed>(FetchLayers{Generation(4), {{0, 0}}});
  EXPECT_EQ(fetching.generation, Generation(4)) << "of the plan that is prepared";
  const auto failed = Ask<StageFailed>(SnapshotRequest{Generation(3), Sequence(0)});
  EXPECT_EQ(failed.generation, Generation(3));
  EXPECT_THAT(failed.reason,
              AllOf(HasSubstr("7 bytes are over 6: give it fewer layers"), HasSubstr("workers")));
}

}  // namespace
}  // namespace runnel::out_of_memory_test
