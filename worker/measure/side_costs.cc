#include "worker/measure/side_costs.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "compress/codec.h"
#include "proto/base/host/processor_time.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/tensor_view.h"

namespace runnel {
namespace {

constexpr int64_t kElements = 1 << 16;
constexpr int kRepetitions = 5;
// Frames in a row. The first ones open buffers and are not counted. Of the others the quickest row
// counts: other work on the processor only adds to a row.
constexpr int64_t kFirstFrames = 16, kSmallFrames = 16, kLargeFrames = 8;
constexpr int kRows = 5;
constexpr size_t kSmallBytes = 64, kLargeBytes = 128 << 10;
constexpr std::chrono::seconds kPatience{2};

double Median(std::vector<int64_t> times) {
  std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
  return static_cast<double>(times[kRepetitions / 2]);
}

// Nanoseconds of the slower one of encoding and decoding kElements values.
absl::StatusOr<double> CodingNs(const std::string& name, const std::vector<float>& values) {
  const Shape shape = {kElements};
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> codec, MakeCodec(name));
  const std::unique_ptr<Encoder> encoder = codec->NewEncoder({});
  std::vector<std::byte> payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
  std::vector<float> decoded(kElements);
  std::vector<int64_t> encoding, decoding;
  for (int i = 0; i < kRepetitions; ++i) {
    const int64_t begin_ns = ThreadProcessorNs();
    RUNNEL_RETURN_IF_ERROR(
        encoder->Encode(ViewOf(values, shape), Sequence(i), i == 0, absl::MakeSpan(payload)));
    const int64_t encoded_ns = ThreadProcessorNs();
    RUNNEL_RETURN_IF_ERROR(codec->Decode(payload, MutableViewOf(absl::MakeSpan(decoded), shape)));
    encoding.push_back(encoded_ns - begin_ns);
    decoding.push_back(ThreadProcessorNs() - encoded_ns);
  }
  return std::max(Median(std::move(encoding)), Median(std::move(decoding)));
}

// One end of the connection of this process with itself.
class End final : public ConnectionObserver {
 public:
  explicit End(bool acknowledges) : acknowledges_(acknowledges) {}

  // Null gives the connection up.
  void Attach(std::shared_ptr<Connection> connection) {
    {
      const std::lock_guard lock(mutex_);
      connection_.swap(connection);
    }
    // The old one ends here: it may call OnClosed, which takes the lock.
  }
  std::shared_ptr<Connection> connection() {
    const std::lock_guard lock(mutex_);
    return connection_;
  }

  absl::Status OnHeader(const FrameHeader& header) override {
    if (header.payload_bytes > kLargeBytes) return absl::InvalidArgumentError("not our frame");
    return absl::OkStatus();
  }
  void OnFrame(Frame frame) override {
    if (acknowledges_) {
      Frame ack;
      ack.header.kind = FrameKind::kAck;
      ack.header.acked_kind = frame.header.kind;
      ack.header.sequence = frame.header.sequence;
      SealFrame(ack);
      if (const auto connection = this->connection()) connection->Send(ack).IgnoreError();
    }
    const std::lock_guard lock(mutex_);
    ++frames_;
    changed_.notify_all();
  }
  void OnClosed(const absl::Status&) override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  // False: not so many in time.
  bool AwaitFrames(int64_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return closed_ || frames_ >= count; }) &&
           frames_ >= count;
  }

 private:
  const bool acknowledges_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Connection> connection_;  // guarded by mutex_
  int64_t frames_ = 0;                      // guarded by mutex_
  bool closed_ = false;                     // guarded by mutex_
};

// Sends frames and counts the process's time until all are acknowledged.
class Traffic {
 public:
  Traffic(std::shared_ptr<Connection> connection, End& sender)
      : connection_(std::move(connection)), sender_(sender) {}

  // Nanoseconds of one end for a frame, in the quickest row.
  absl::StatusOr<double> FrameNs(int64_t frames, size_t bytes) {
    int64_t least_ns = std::numeric_limits<int64_t>::max();
    for (int row = 0; row < kRows; ++row) {
      RUNNEL_ASSIGN_OR_RETURN(const int64_t ns, SpentNs(frames, bytes));
      least_ns = std::min(least_ns, ns);
    }
    return static_cast<double>(least_ns) / static_cast<double>(2 * frames);  // both ends are here
  }

  absl::StatusOr<int64_t> SpentNs(int64_t frames, size_t bytes) {
    ProcessorTime time;
    time.Resume();
    for (int64_t i = 0; i < frames; ++i) {
      Frame frame;
      frame.header.kind = FrameKind::kActivation;
      frame.header.sequence = Sequence(sent_++);
      frame.payload = pool_.Allocate(bytes);
      std::fill(frame.payload.mutable_bytes().begin(), frame.payload.mutable_bytes().end(),
                std::byte{1});
      SealFrame(frame);
      RUNNEL_RETURN_IF_ERROR(connection_->Send(frame));
      // Keeps few frames on their way, as a pipeline does.
      if (!sender_.AwaitFrames(sent_ - kAhead)) return NoAnswer();
    }
    if (!sender_.AwaitFrames(sent_)) return NoAnswer();
    time.Pause();
    return time.ns();
  }

 private:
  static constexpr int64_t kAhead = 2;

  static absl::Status NoAnswer() {
    return absl::DeadlineExceededError("frames of this process to itself are not answered");
  }

  std::shared_ptr<Connection> connection_;
  End& sender_;
  BufferPool pool_;
  int64_t sent_ = 0;
};

}  // namespace

absl::StatusOr<double> MeasureCoding(const std::vector<std::string>& codecs) {
  const CounterRandom random(1, RandomPurpose::kTest, 0, 0);
  std::vector<float> values(kElements);
  for (int64_t e = 0; e < kElements; ++e) values[e] = static_cast<float>(random.Normal(e));
  double slowest_ns = 0;
  for (const std::string& codec : codecs) {
    RUNNEL_ASSIGN_OR_RETURN(const double ns, CodingNs(codec, values));
    slowest_ns = std::max(slowest_ns, ns);
  }
  return slowest_ns * 1e-9 / static_cast<double>(kElements * sizeof(float));
}

absl::StatusOr<TransportCosts> MeasureTransport(Transport& transport) {
  End receiver(true), sender(false);
  RUNNEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Listener> listener,
      transport.Listen("127.0.0.1:0", [&receiver](std::shared_ptr<Connection> connection) {
        receiver.Attach(std::move(connection));
        return Accepted{&receiver, {}};
      }));
  RUNNEL_ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                          transport.Dial(listener->address(), &sender, {}));
  absl::StatusOr<TransportCosts> costs = [&]() -> absl::StatusOr<TransportCosts> {
    Traffic traffic(connection, sender);
    RUNNEL_RETURN_IF_ERROR(traffic.SpentNs(kFirstFrames, kLargeBytes).status());
    RUNNEL_ASSIGN_OR_RETURN(const double frame_ns, traffic.FrameNs(kSmallFrames, kSmallBytes));
    RUNNEL_ASSIGN_OR_RETURN(const double large_frame_ns,
                            traffic.FrameNs(kLargeFrames, kLargeBytes));
    return TransportCosts{frame_ns * 1e-9, std::max(0.0, large_frame_ns - frame_ns) * 1e-9 /
                                               static_cast<double>(kLargeBytes)};
  }();
  connection.reset();
  receiver.Attach(nullptr);
  return costs;
}

}  // namespace runnel
