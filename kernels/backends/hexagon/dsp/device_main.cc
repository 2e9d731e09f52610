// The DSP's shared object on a device: one entry, which the host's remote calls reach, and packets
// of a queue. Its undefined symbols are functions of the DSP's system, declared here; those that
// older systems lack are weak. Not verified on hardware.

#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/platform.h"
#include "kernels/backends/hexagon/dsp/server.h"

extern "C" {

// Buffers of a remote call: in, then out.
struct RemoteBuffer {
  void* data;
  uint32_t bytes;
};

struct QueueBuffer {
  uint32_t file;
  uint32_t bytes;
  uint32_t offset;
  uint32_t flags;
  uint64_t address;
};
using QueueCallback = void (*)(void* queue, int error, void* context);

int HAP_mmap_get(int file, void** address, uint64_t* physical);
int HAP_mmap_put(int file);
int HAP_power_set(void* context, void* request);
// Layout of the public headers; longer ones of later systems find zeros.
struct ThreadAttributes {
  char name[16];
  uint8_t partition;
  uint8_t software_id;
  uint16_t priority;
  uint8_t group;
  uint8_t bus_priority;
  uint16_t timer_id;
  uint32_t stack_bytes;
  void* stack;
  uint32_t more[8];
};
__attribute__((weak)) int qurt_thread_create(uint32_t* thread, ThreadAttributes* attributes,
                                             void (*body)(void*), void* context);
__attribute__((weak)) int qurt_thread_join(uint32_t thread, int* status);
__attribute__((weak)) void qurt_thread_exit(int status);
__attribute__((weak)) int qurt_thread_get_priority(uint32_t thread);
__attribute__((weak)) uint32_t qurt_thread_get_id();
__attribute__((weak)) int dspqueue_import(uint64_t id, QueueCallback packet, QueueCallback error,
                                          void* context, void** queue);
__attribute__((weak)) int dspqueue_close(void* queue);
__attribute__((weak)) int dspqueue_read_noblock(void* queue, uint32_t* flags, uint32_t max_buffers,
                                                uint32_t* buffers, QueueBuffer* buffer,
                                                uint32_t max_bytes, uint32_t* bytes,
                                                uint8_t* message);
__attribute__((weak)) int dspqueue_write(void* queue, uint32_t flags, uint32_t buffers,
                                         QueueBuffer* buffer, uint32_t bytes,
                                         const uint8_t* message, uint32_t timeout_us);

}  // extern "C"

namespace runnel::hexagon {

namespace {

constexpr int kOk = 0, kUnsupported = 0x14, kBadCall = 0x0e;
// Buffer flags: the sender's cache is written back, the recipient's forgets.
constexpr uint32_t kFlushSender = 0x10, kInvalidateRecipient = 0x80;
constexpr uint32_t kMaxBuffers = 64;
constexpr uint32_t kStackBytes = 64 << 10, kVectorAlignment = 128;
constexpr uint32_t kAnswerTimeoutUs = 1000000;

Server server;
void* queue = nullptr;
// The file that is mapped; -1: none.
int mapped_file = -1;

DspReply Serve(const DspRequest& request) {
  const DspReply reply = server.Answer(request);
  // A session that did not open keeps nothing.
  if (request.verb == DspVerb::kOpen && server.desk() == nullptr && mapped_file >= 0) {
    HAP_mmap_put(mapped_file);
    mapped_file = -1;
  }
  return reply;
}

// The list's writes go to the host's caches with the answer.
uint32_t WrittenBuffers(const DspRequest& request, QueueBuffer* buffers) {
  if (request.verb != DspVerb::kRun || server.desk() == nullptr) return 0;
  const DspDesk& desk = *server.desk();
  const uint32_t count = desk.written_count < kMaxRanges ? desk.written_count : kMaxRanges;
  for (uint32_t i = 0; i < count; ++i) {
    buffers[i] = {static_cast<uint32_t>(mapped_file), desk.written[i].bytes, desk.written[i].offset,
                  kFlushSender | kInvalidateRecipient, 0};
  }
  return count;
}

void AnswerPackets(void* from, int, void*) {
  for (;;) {
    DspRequest request;
    QueueBuffer buffers[kMaxBuffers];
    uint32_t flags = 0, count = 0, bytes = 0;
    const int error =
        dspqueue_read_noblock(from, &flags, kMaxBuffers, &count, buffers, sizeof(request), &bytes,
                              reinterpret_cast<uint8_t*>(&request));
    if (error != kOk) return;  // mostly: there are no more
    if (bytes != sizeof(request)) request.magic = 0;
    const DspReply reply = Serve(request);
    count = WrittenBuffers(request, buffers);
    dspqueue_write(from, 0, count, count == 0 ? nullptr : buffers, sizeof(reply),
                   reinterpret_cast<const uint8_t*>(&reply), kAnswerTimeoutUs);
  }
}
void IgnoreError(void*, int, void*) {}  // the host finds out by itself

int DetachQueue() {
  if (queue == nullptr) return kOk;
  const int error = dspqueue_close(queue);
  queue = nullptr;
  return error;
}

int AttachQueue(uint64_t id) {
  if (dspqueue_import == nullptr || dspqueue_read_noblock == nullptr || dspqueue_write == nullptr ||
      dspqueue_close == nullptr) {
    return kUnsupported;
  }
  DetachQueue();
  return dspqueue_import(id, AnswerPackets, IgnoreError, nullptr, &queue);
}

void Close() {
  DetachQueue();
  server.Close();
  if (mapped_file >= 0) HAP_mmap_put(mapped_file);
  mapped_file = -1;
}

}  // namespace

uint8_t* MapShared(const DspRequest& open) {
  void* address = nullptr;
  const int file = static_cast<int>(open.shared_file);
  if (HAP_mmap_get(file, &address, nullptr) != kOk || address == nullptr) return nullptr;
  mapped_file = file;
  return static_cast<uint8_t*>(address);
}

uint8_t* MapPrivate(const DspRequest& open, uint8_t* shared) { return shared + open.shared_bytes; }

void VotePower(bool up) {
  struct alignas(8) Power {
    uint32_t type = 0;
    uint32_t reserved = 0;
    uint8_t payload[248] = {};
  };
  constexpr uint32_t kVectors = 2, kClientClass = 3, kClocks = 7;
  constexpr uint8_t kCompute = 4, kPerformance = 0x10, kTurbo = 6, kLatencyUs = 100;
  // A vote that is refused costs speed, nothing else.
  Power request;
  request.type = kClientClass;
  request.payload[0] = kCompute;
  HAP_power_set(&server, &request);
  request = Power();
  request.type = kVectors;
  request.payload[0] = up ? 1 : 0;
  HAP_power_set(&server, &request);
  request = Power();
  request.type = kClocks;
  request.payload[0] = up ? 0 : 1;  // clocks that follow the load
  request.payload[1] = kPerformance;
  if (up) {
    request.payload[2] = 1;
    request.payload[4] = kLatencyUs;
    request.payload[8] = 1;
    request.payload[12] = kTurbo;  // like target, without bounds
  }
  HAP_power_set(&server, &request);
}

void RunOnThreads(uint32_t count, void (*body)(void*, uint32_t), void* context) {
  struct Part {
    void (*body)(void*, uint32_t);
    void* context;
    uint32_t number;
    uint32_t thread;
    bool started;
  };
  alignas(kVectorAlignment) static uint8_t stacks[kMaxThreads][kStackBytes];
  const bool has_threads = qurt_thread_create != nullptr && qurt_thread_join != nullptr &&
                           qurt_thread_exit != nullptr && qurt_thread_get_priority != nullptr &&
                           qurt_thread_get_id != nullptr;
  Part parts[kMaxThreads];
  for (uint32_t i = 0; i < count; ++i) {
    Part& part = parts[i];
    part = {body, context, i, 0, false};
    // The last one is this thread's.
    if (has_threads && i + 1 < count) {
      ThreadAttributes attributes = {};
      memcpy(attributes.name, "runnel", 7);
      attributes.priority = static_cast<uint16_t>(qurt_thread_get_priority(qurt_thread_get_id()));
      attributes.bus_priority = 0xff;  // as the process has it
      attributes.timer_id = 0xfffe;    // counted for nobody
      attributes.stack_bytes = kStackBytes;
      attributes.stack = stacks[i];
      const auto run = [](void* at) {
        const Part& its = *static_cast<const Part*>(at);
        its.body(its.context, its.number);
        qurt_thread_exit(0);
      };
      part.started = qurt_thread_create(&part.thread, &attributes, run, &part) == kOk;
    }
    if (!part.started) body(context, i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    int status = 0;
    if (parts[i].started) qurt_thread_join(parts[i].thread, &status);
  }
}

void ShowProgress(volatile uint32_t* word, uint32_t value) {
  *word = value;
  __builtin_HEXAGON_Y2_dccleana(const_cast<uint32_t*>(word));
}

DspCounts ReadCounts() { return {}; }
void ShowCounts(DspCounts&, const DspCounts&) {}

}  // namespace runnel::hexagon

extern "C" __attribute__((visibility("default"))) int RUNNEL_DSP_ENTRY(uint64_t, uint32_t scalars,
                                                                       RemoteBuffer* buffers) {
  using namespace runnel::hexagon;
  const uint32_t method = scalars >> 24 & 31, in = scalars >> 16 & 255, out = scalars >> 8 & 255;
  if (method == kMethodOpen) return kOk;
  if (method == kMethodClose) {
    Close();
    return kOk;
  }
  if (method == kMethodDetachQueue) return DetachQueue();
  if (method == kMethodAttachQueue) {
    if (in < 1 || buffers[0].bytes != sizeof(uint64_t)) return kBadCall;
    uint64_t id;
    memcpy(&id, buffers[0].data, sizeof(id));
    return AttachQueue(id);
  }
  if (method != kMethodRequest || in < 1 || out < 1 || buffers[0].bytes != sizeof(DspRequest) ||
      buffers[in].bytes != sizeof(DspReply)) {
    return kBadCall;
  }
  DspRequest request;
  memcpy(&request, buffers[0].data, sizeof(request));
  const DspReply reply = Serve(request);
  memcpy(buffers[in].data, &reply, sizeof(reply));
  return kOk;
}
