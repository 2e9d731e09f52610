#include "kernels/backends/hexagon/device/device_link.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

#define RUNNEL_TEXT_OF(name) #name
#define RUNNEL_TEXT(name) RUNNEL_TEXT_OF(name)

namespace runnel::hexagon {
namespace {

// Never ends: a link may be closing when the process does.
struct SlotState {
  std::mutex mutex;
  std::condition_variable freed;
  bool taken = false;
};
SlotState& Slot() {
  static auto* state = new SlotState;
  return *state;
}

absl::Status Refuse(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", DescribeVendorError(error)));
}

absl::Status OpenObject(const std::string& folder, DeviceLink* link) {
  RUNNEL_ASSIGN_OR_RETURN(link->object, ChooseDspObject(folder, link->dsp.arch));
  // The DSP's loader asks this process for the file, and the library looks there.
  for (const char* variable : {"ADSP_LIBRARY_PATH", "DSP_LIBRARY_PATH"})
    setenv(variable, folder.c_str(), /*overwrite=*/0);
  const VendorCalls& calls = link->library->calls;
  struct {
    int domain = kComputeDsp;
    int enable = 1;
  } allow;
  int error = calls.session_control(kSessionUnsigned, &allow, sizeof(allow));
  if (error != 0) return Refuse("the DSP refuses unsigned modules", error);
  // Vectors on the stack take room. Without it the DSP's usual stack has to do.
  struct {
    int domain = kComputeDsp;
    int priority = -1;
    int stack_bytes = 64 << 10;
  } thread;
  calls.session_control(kSessionThread, &thread, sizeof(thread));
  const std::string uri = absl::StrCat("file:///", link->object,
                                       "?" RUNNEL_TEXT(RUNNEL_DSP_ENTRY) "&_modver=1.0&_dom=cdsp");
  uint64_t handle = 0;
  error = calls.open(uri.c_str(), &handle);
  if (error != 0)
    return Refuse(absl::StrCat("the DSP does not open ", link->object, " of ", folder), error);
  link->handle = std::make_shared<const RemoteHandle>(link->library, handle);
  // Answers wake the host sooner; only a wish.
  struct {
    uint32_t enable = 1;
    uint32_t latency_us = 100;
  } latency;
  calls.handle_control(handle, kControlLatency, &latency, sizeof(latency));
  return absl::OkStatus();
}

absl::Status ShareMemory(const DeviceLinkOptions& options, DeviceLink* link) {
  constexpr int kSystemHeap = 25, kMapByFile = 2;
  constexpr uint32_t kCached = 1;
  const VendorMemory& memory = link->library->memory;
  const uint32_t bytes = options.shared_bytes + options.private_bytes;
  void* base = memory.alloc(kSystemHeap, kCached, static_cast<int>(bytes));
  if (base == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("the device has no ", bytes >> 20, " MiB to share with the DSP"));
  }
  const int file = memory.to_fd(base);
  const int error = memory.map(kComputeDsp, file, base, 0, bytes, kMapByFile);
  if (error != 0) {
    memory.free(base);
    return Refuse("the DSP does not map the shared memory", error);
  }
  link->memory = SharedMemory::Adopt(file, static_cast<std::byte*>(base), options.shared_bytes,
                                     kDeskBytes, [library = link->library, file, base, bytes] {
                                       library->memory.unmap(kComputeDsp, file, base, bytes);
                                       library->memory.free(base);
                                     });
  return absl::OkStatus();
}

absl::Status Greet(DspTransport& transport, std::chrono::milliseconds patience) {
  RUNNEL_RETURN_IF_ERROR(transport.Send({.verb = DspVerb::kGreet}, {}, {}));
  RUNNEL_ASSIGN_OR_RETURN(const auto answer, transport.Receive(patience));
  if (!answer) return absl::UnavailableError("the DSP answers no packet");
  if (answer->size() == sizeof(DspReply)) return absl::OkStatus();
  return absl::UnavailableError("the DSP answers a packet with nonsense");
}

void ChooseTransport(std::chrono::milliseconds patience, DeviceLink* link) {
  auto queue = MakeQueueTransport(link->handle, link->memory);
  const absl::Status status = queue.ok() ? Greet(**queue, patience) : queue.status();
  if (status.ok()) {
    link->transport = *std::move(queue);
    link->way = link->transport->name();
    return;
  }
  link->transport = MakeCallTransport(link->handle, link->memory);
  link->way = absl::StrCat(link->transport->name(), " (no packet queue: ", status.message(), ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSlot>> DeviceSlot::Take() {
  constexpr std::chrono::seconds kPatience(5);
  SlotState& slot = Slot();
  std::unique_lock lock(slot.mutex);
  if (!slot.freed.wait_for(lock, kPatience, [&] { return !slot.taken; })) {
    return absl::UnavailableError("this process has a session with the DSP already");
  }
  slot.taken = true;
  return std::unique_ptr<DeviceSlot>(new DeviceSlot);
}

DeviceSlot::~DeviceSlot() {
  SlotState& slot = Slot();
  const std::lock_guard lock(slot.mutex);
  slot.taken = false;
  slot.freed.notify_all();
}

absl::StatusOr<DeviceLink> OpenDeviceLink(const DeviceLinkOptions& options) {
  DeviceLink link;
  RUNNEL_ASSIGN_OR_RETURN(link.slot, DeviceSlot::Take());
  RUNNEL_ASSIGN_OR_RETURN(link.library, LoadVendorLibrary(options.library));
  RUNNEL_ASSIGN_OR_RETURN(link.dsp, QueryDsp(*link.library));
  RUNNEL_RETURN_IF_ERROR(OpenObject(options.objects, &link));
  RUNNEL_RETURN_IF_ERROR(ShareMemory(options, &link));
  ChooseTransport(options.greeting, &link);
  return link;
}

void CloseDeviceLink(DeviceLink* link) {
  link->transport.reset();
  link->handle.reset();
  link->slot.reset();
}

void AbandonDeviceLink(DeviceLink* link) {
  int domain = kComputeDsp;
  link->library->calls.session_control(kSessionKill, &domain, sizeof(domain));
  auto rest = std::make_shared<DeviceLink>();
  rest->slot = std::move(link->slot);
  rest->handle = std::move(link->handle);
  rest->transport = std::move(link->transport);
  std::thread([rest = std::move(rest)] { CloseDeviceLink(rest.get()); }).detach();
}

}  // namespace runnel::hexagon
