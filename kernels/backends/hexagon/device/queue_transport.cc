#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/device/dsp_transport.h"

namespace runnel::hexagon {
namespace {

constexpr uint32_t kWriteTimeoutUs = 1000000;

class QueueTransport final : public DspTransport {
 public:
  QueueTransport(std::shared_ptr<const RemoteHandle> handle,
                 std::shared_ptr<const SharedMemory> memory, void* queue)
      : handle_(std::move(handle)), memory_(std::move(memory)), queue_(queue) {}
  ~QueueTransport() override {
    // The DSP's end goes first.
    handle_->Invoke(kMethodDetachQueue, 0, 0, nullptr);
    queues().close(queue_);
  }

  const char* name() const override { return "packet queue"; }

  absl::Status Send(const DspRequest& request, absl::Span<const DspRange> changed,
                    absl::Span<const DspRange>) override {
    std::vector<QueueBuffer> buffers;
    for (const DspRange& range : changed) {
      buffers.push_back({static_cast<uint32_t>(memory_->file()), range.bytes, range.offset,
                         kFlushSender | kInvalidateRecipient});
    }
    const int error = queues().write(queue_, 0, static_cast<uint32_t>(buffers.size()),
                                     buffers.empty() ? nullptr : buffers.data(), sizeof(request),
                                     reinterpret_cast<const uint8_t*>(&request), kWriteTimeoutUs);
    return error == 0 ? absl::OkStatus() : Failed("takes no packet", error);
  }

  absl::StatusOr<std::optional<std::vector<std::byte>>> Receive(
      std::chrono::milliseconds patience) override {
    std::array<QueueBuffer, kMaxQueueBuffers> buffers;
    std::vector<std::byte> message(2 * sizeof(DspReply));
    uint32_t flags = 0, count = 0, bytes = 0;
    const int error = queues().read(
        queue_, &flags, kMaxQueueBuffers, &count, buffers.data(),
        static_cast<uint32_t>(message.size()), &bytes, reinterpret_cast<uint8_t*>(message.data()),
        static_cast<uint32_t>(std::chrono::microseconds(patience).count()));
    if ((error & kErrorBits) == kErrorExpired) return std::nullopt;
    if (error != 0) return Failed("gives no packet", error);
    message.resize(std::min<size_t>(bytes, message.size()));
    return message;
  }

 private:
  const VendorQueues& queues() const { return handle_->library().queues; }
  static absl::Status Failed(const char* what, int error) {
    return absl::UnavailableError(
        absl::StrCat("'s queue ", what, ": ", DescribeVendorError(error)));
  }

  const std::shared_ptr<const RemoteHandle> handle_;
  const std::shared_ptr<const SharedMemory> memory_;
  void* const queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DspTransport>> MakeQueueTransport(
    std::shared_ptr<const RemoteHandle> handle, std::shared_ptr<const SharedMemory> memory) {
  const VendorQueues& queues = handle->library().queues;
  if (!queues.complete()) return absl::UnavailableError("the library has no queues");
  const auto refuse = [](const char* what, int error) {
    return absl::UnavailableError(absl::StrCat(what, ": ", DescribeVendorError(error)));
  };
  void* queue = nullptr;
  int error = queues.create(kComputeDsp, 0, 0, 0, nullptr, nullptr, nullptr, &queue);
  if (error != 0) return refuse("no queue can be made", error);
  uint64_t id = 0;
  error = queues.export_id(queue, &id);
  if (error == 0) {
    RemoteArgument argument = {&id, sizeof(id)};
    error = handle->Invoke(kMethodAttachQueue, 1, 0, &argument);
  }
  if (error == 0) {
    return std::make_unique<QueueTransport>(std::move(handle), std::move(memory), queue);
  }
  queues.close(queue);
  return refuse("the DSP takes no queue", error);
}

}  // namespace runnel::hexagon
