// A double of the vendor's libcdsprpc.so, for tests alone: the DSP is the real shared object under
// qemu-hexagon (object_host.cc). Host and DSP have a memory each, and only what a call or packet
// names passes from one to the other: as with caches that never see each other's changes. What a
// list changed beside the ranges that it names fails the call; and those lines, dirty in the DSP's
// cache, are written back behind the host's next changes.
//
// RUNNEL_DOUBLE_FAULT says what goes wrong: a name, and with :N only from the Nth list on; one that
// ends in "_once" happens at that list alone. Several are joined by "+".

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/backends/hexagon/device/vendor_library.h"
#include "kernels/backends/hexagon/op_list.h"
#include "tests/kernels/dsp_device/object_messages.h"

extern char** environ;

namespace runnel::hexagon {
namespace {

constexpr int kUnsupported = 0x14, kNoFile = 0x44, kReset = 0x68, kRefused = 0x72,
              kBadParameter = 0x0e;
// None of the vendor's.
constexpr int kUndeclaredChange = 0x3ff;
constexpr int kDspMemoryFile = 3, kObjectFile = 4, kOldSystemFile = 77, kUnmanagedFile = 78;
constexpr size_t kLineBytes = 128;
constexpr uint32_t kVtcmBytes = 256 << 10, kShortVtcmBytes = 100 << 10;

constexpr DspCounts kPattern = {0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a};

struct DirtyLine {
  size_t offset = 0;
  std::vector<std::byte> bytes;
};

// The DSP. A process has one at a time; a new handle starts a new one.
struct Dsp {
  pid_t pid = -1;
  int socket = -1;
  std::byte* host = nullptr;  // the memory as the host sees it
  std::byte* own = nullptr;   // and as the DSP does
  int own_file = -1;
  // `own` as it has to be: what the host sent, and the ranges that lists named.
  std::byte* expected = nullptr;
  size_t bytes = 0;
  size_t shared_bytes = 0;       // behind them is the DSP's own
  std::vector<DirtyLine> dirty;  // changed, but named by nobody
  FromObject last;
  std::vector<std::byte> packet;  // the answer that waits
  std::atomic<int64_t> lists = 0;
  std::atomic<int64_t> bytes_in = 0, bytes_out = 0;
};
Dsp dsp;

bool IsNow(const std::string& text, const std::string& fault) {
  const size_t colon = text.find(':');
  if (text.substr(0, colon) != fault) return false;
  if (colon == std::string::npos) return true;
  const int64_t list = std::atoi(text.c_str() + colon + 1);
  return fault.ends_with("_once") ? dsp.lists == list : dsp.lists >= list;
}

bool Fails(const std::string& fault) {
  const char* given = std::getenv("RUNNEL_DOUBLE_FAULT");
  for (std::string text = given == nullptr ? "" : given; !text.empty();) {
    const size_t end = std::min(text.find('+'), text.size());
    if (IsNow(text.substr(0, end), fault)) return true;
    text.erase(0, end + 1);
  }
  return false;
}

void CountList(const void* message) {
  const auto& request = *static_cast<const DspRequest*>(message);
  if (request.verb == DspVerb::kRun) ++dsp.lists;
  if (request.verb == DspVerb::kOpen) dsp.shared_bytes = request.shared_bytes;
}

bool Inside(uint64_t offset, uint64_t bytes) { return offset + bytes <= dsp.bytes; }
void ToDsp(uint64_t offset, uint64_t bytes) {
  if (dsp.own == nullptr || !Inside(offset, bytes)) return;
  std::memcpy(dsp.own + offset, dsp.host + offset, bytes);
  std::memcpy(dsp.expected + offset, dsp.host + offset, bytes);
  dsp.bytes_in += static_cast<int64_t>(bytes);
}
void ToHost(uint64_t offset, uint64_t bytes) {
  if (dsp.own == nullptr || !Inside(offset, bytes)) return;
  std::memcpy(dsp.host + offset, dsp.own + offset, bytes);
  std::memcpy(dsp.expected + offset, dsp.own + offset, bytes);
  dsp.bytes_out += static_cast<int64_t>(bytes);
}

// Behind ToDsp: the host's changes are there, and the DSP writes old lines over them. And what the
// host reads of no list, the program has no reason to touch: a pattern shows writes of zeros.
void BeginList(const void* message) {
  const auto& request = *static_cast<const DspRequest*>(message);
  if (dsp.own == nullptr || request.verb != DspVerb::kRun) return;
  for (const DirtyLine& line : dsp.dirty) {
    for (std::byte* memory : {dsp.own, dsp.host, dsp.expected})
      std::memcpy(memory + line.offset, line.bytes.data(), line.bytes.size());
  }
  dsp.dirty.clear();
  for (std::byte* memory : {dsp.own, dsp.expected}) {
    auto& desk = *reinterpret_cast<DspDesk*>(memory);
    for (uint32_t i = 0; i < std::min(request.op_count, kMaxOps); ++i) desk.counts[i] = kPattern;
    std::memset(desk.reserved_too, 0x5a, sizeof(desk.reserved_too));
  }
}

// Keeps the lines of `own` from `begin` on that nobody named.
void CollectDirty(size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += kLineBytes) {
    const size_t bytes = std::min(kLineBytes, end - at);
    if (std::memcmp(dsp.own + at, dsp.expected + at, bytes) != 0)
      dsp.dirty.push_back({at, {dsp.own + at, dsp.own + at + bytes}});
  }
}

// Behind ToHost. kUndeclaredChange: a byte beside the named ranges changed.
int EndList() {
  if (dsp.own == nullptr) return 0;
  // The word of progress is written back by itself.
  constexpr size_t kWord = sizeof(DspDesk::ops_done);
  std::memcpy(dsp.expected, dsp.own, kWord);
  const auto all = static_cast<off_t>(std::min(dsp.shared_bytes, dsp.bytes));
  // Pages that nobody touched are holes.
  for (off_t at = 0; at < all;) {
    const off_t begin = lseek(dsp.own_file, at, SEEK_DATA);
    if (begin < 0 || begin >= all) break;
    at = std::min(all, lseek(dsp.own_file, begin, SEEK_HOLE));
    CollectDirty(static_cast<size_t>(begin), static_cast<size_t>(at));
  }
  if (dsp.dirty.empty()) return 0;
  std::fprintf(stderr, "double: list %lld changed the line at byte %zu, which it does not name\n",
               static_cast<long long>(dsp.lists), dsp.dirty.front().offset);
  return Fails("lenient") ? 0 : kUndeclaredChange;
}

void End() {
  if (dsp.socket >= 0) close(dsp.socket);
  dsp.socket = -1;
  if (dsp.pid > 0) {
    kill(dsp.pid, SIGKILL);
    waitpid(dsp.pid, nullptr, 0);
  }
  dsp.pid = -1;
  dsp.packet.clear();
  dsp.dirty.clear();
}

std::string Emulator() {
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "" : path;
  while (!folders.empty()) {
    const size_t colon = folders.find(':');
    for (const char* name : {"/qemu-hexagon", "/qemu-hexagon-static"}) {
      const std::string file = folders.substr(0, colon) + name;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
    folders = colon == std::string::npos ? "" : folders.substr(colon + 1);
  }
  return "";
}

// Beside this library.
std::string ObjectHost() {
  Dl_info info;
  if (dladdr(&dsp, &info) == 0) return "";
  return (std::filesystem::path(info.dli_fname).parent_path() / "dsp_object_host").string();
}

int Start(const std::string& object) {
  const char* folder = std::getenv("ADSP_LIBRARY_PATH");
  const std::string path = std::string(folder == nullptr ? "" : folder) + "/" + object;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return kNoFile;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return kReset;
  std::string emulator = Emulator(), program = ObjectHost();
  char* words[] = {emulator.data(), program.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  // By way of high numbers: one of the files may have the other's.
  const int high_memory = fcntl(dsp.own_file, F_DUPFD_CLOEXEC, 100);
  const int high_object = fcntl(file, F_DUPFD_CLOEXEC, 100);
  posix_spawn_file_actions_adddup2(&actions, high_memory, kDspMemoryFile);
  posix_spawn_file_actions_adddup2(&actions, high_object, kObjectFile);
  if (Fails("old_system")) posix_spawn_file_actions_adddup2(&actions, high_object, kOldSystemFile);
  if (Fails("unmanaged")) posix_spawn_file_actions_adddup2(&actions, high_object, kUnmanagedFile);
  const int error = posix_spawn(&dsp.pid, words[0], &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  for (int one : {ends[1], file, high_memory, high_object}) close(one);
  dsp.socket = ends[0];
  if (error == 0) return 0;
  dsp.pid = -1;
  End();
  return kReset;
}

bool SendAll(const ToObject& message) {
  return send(dsp.socket, &message, sizeof(message), MSG_NOSIGNAL) == sizeof(message);
}

// Within the time, -1: any. False: there is none.
bool ReceiveAll(FromObject* message, int timeout_ms) {
  pollfd waited = {dsp.socket, POLLIN, 0};
  if (poll(&waited, 1, timeout_ms) <= 0) return false;
  return recv(dsp.socket, message, sizeof(*message), MSG_WAITALL) == sizeof(*message);
}

ToObject MessageOf(ObjectMessage kind, const void* payload, uint32_t bytes) {
  ToObject message;
  message.kind = kind;
  message.shared_bytes = static_cast<uint32_t>(dsp.bytes);
  message.refuse_vtcm = Fails("vtcm") || Fails("vtcm_once") ? 1 : 0;
  message.ask_vtcm = Fails("vtcm_gone")          ? 2
                     : Fails("vtcm_asked_early") ? 3
                     : Fails("vtcm_asked")       ? 1
                                                 : 0;
  message.share_vtcm = Fails("vtcm_shared") ? 1 : 0;
  message.mute_manager = Fails("manager_mute") ? 1 : 0;
  message.most_vtcm = Fails("vtcm_short_once") ? kShortVtcmBytes : kVtcmBytes;
  message.bytes = bytes;
  if (bytes > 0 && bytes <= kMaxPayload) std::memcpy(message.payload, payload, bytes);
  return message;
}

uint64_t OffsetOf(const RemoteArgument& argument) {
  return static_cast<uint64_t>(static_cast<std::byte*>(argument.data) - dsp.host);
}

// Until the process is killed.
int Hang() {
  pollfd waited = {dsp.socket, POLLIN, 0};
  while (poll(&waited, 1, 100) <= 0) {
  }
  return kReset;
}

}  // namespace

extern "C" {

void* rpcmem_alloc(int, uint32_t, int bytes) {
  if (Fails("memory")) return nullptr;
  const int file = memfd_create("double", MFD_CLOEXEC);
  const auto size = static_cast<size_t>(bytes);
  if (file < 0 || ftruncate(file, bytes) != 0) return nullptr;
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  dsp.own = static_cast<std::byte*>(at);
  dsp.own_file = file;
  dsp.bytes = size;
  dsp.host = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  dsp.expected = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return dsp.host;
}
void rpcmem_free(void* memory) {
  munmap(memory, dsp.bytes);
  if (memory != dsp.host) return;
  munmap(dsp.own, dsp.bytes);
  munmap(dsp.expected, dsp.bytes);
  close(dsp.own_file);
  dsp.host = dsp.own = dsp.expected = nullptr;
}
int rpcmem_to_fd(void*) { return dsp.own_file; }
int fastrpc_mmap(int, int, void*, int, size_t, int) { return 0; }
int fastrpc_munmap(int, int, void*, size_t) { return 0; }

std::string* opened_object() {
  static std::string name;
  return &name;
}

#ifndef RUNNEL_DOUBLE_LACKS_OPEN
int remote_handle64_open(const char* uri, uint64_t* handle) {
  const std::string text = uri;
  const std::string begin = "file:///";
  const std::string end = "?runnel_dsp_skel_handle_invoke&_modver=1.0&_dom=cdsp";
  const size_t at = text.find(end);
  if (Fails("open") || text.rfind(begin, 0) != 0 || at == std::string::npos) return kRefused;
  End();
  dsp.lists = dsp.bytes_in = dsp.bytes_out = 0;
  *opened_object() = text.substr(begin.size(), at - begin.size());
  *handle = 7;
  return 0;
}
#endif

int remote_handle64_invoke(uint64_t, uint32_t scalars, RemoteArgument* arguments) {
  // The memory is there by now.
  if (dsp.pid < 0) {
    if (const int error = Start(*opened_object()); error != 0) return error;
  }
  const uint32_t method = scalars >> 24 & 31, in = scalars >> 16 & 255, out = scalars >> 8 & 255;
  if (method == kMethodRequest) {
    CountList(arguments[0].data);
    if (Fails("invoke")) return kRefused;
    if (Fails("hang")) return Hang();
    for (uint32_t i = 1; i < in; ++i) ToDsp(OffsetOf(arguments[i]), arguments[i].bytes);
    BeginList(arguments[0].data);
  }
  ToObject message = MessageOf(ObjectMessage::kInvoke, in > 0 ? arguments[0].data : nullptr,
                               in > 0 ? static_cast<uint32_t>(arguments[0].bytes) : 0);
  message.scalars = scalars;
  message.out_bytes = out > 0 ? static_cast<uint32_t>(arguments[in].bytes) : 0;
  if (!SendAll(message) || !ReceiveAll(&dsp.last, -1)) return kReset;
  if (out > 0) std::memcpy(arguments[in].data, dsp.last.payload, arguments[in].bytes);
  for (uint32_t i = in + 1; i < in + out; ++i) ToHost(OffsetOf(arguments[i]), arguments[i].bytes);
  if (method == kMethodRequest) {
    if (const int error = EndList(); error != 0) return error;
  }
  if (method == kMethodRequest && Fails("nonsense")) std::memset(arguments[in].data, 3, 4);
  return dsp.last.result;
}

int remote_handle64_close(uint64_t handle) {
  if (dsp.pid > 0) remote_handle64_invoke(handle, kMethodClose << 24, nullptr);
  End();
  return 0;
}

int remote_handle64_control(uint64_t, uint32_t, void*, uint32_t) { return 0; }

int remote_handle_control(uint32_t request, void* data, uint32_t) {
  auto* words = static_cast<uint32_t*>(data);
  if (request != kControlCapability || words[0] != kComputeDsp) return kBadParameter;
  const char* arch = std::getenv("RUNNEL_DOUBLE_ARCH");
  switch (words[1]) {
    case 1:
      words[2] = Fails("unsigned") ? 0 : 1;
      return 0;
    case 3:
      words[2] = 4;
      return 0;
    case 4:
      words[2] = kVtcmBytes;
      return 0;
    case 6:
      words[2] = 0x8c00 | static_cast<uint32_t>(std::strtol(arch ? arch : "66", nullptr, 16));
      return 0;
    default:
      words[2] = 1;
      return 0;
  }
}

int remote_session_control(uint32_t request, void*, uint32_t) {
  if (request == kSessionUnsigned) return Fails("refuse_unsigned") ? kUnsupported : 0;
  if (request == kSessionKill && dsp.pid > 0) kill(dsp.pid, SIGKILL);
  return 0;
}

#ifndef RUNNEL_DOUBLE_LACKS_QUEUES
int dspqueue_create(int, uint32_t, uint32_t, uint32_t, void*, void*, void*, void** queue) {
  *queue = &dsp;
  return Fails("queue") ? kUnsupported : 0;
}
int dspqueue_close(void*) { return 0; }
int dspqueue_export(void*, uint64_t* id) {
  *id = 0x1234567890;
  return 0;
}

int dspqueue_write(void*, uint32_t, uint32_t count, QueueBuffer* buffers, uint32_t bytes,
                   const uint8_t* message, uint32_t) {
  CountList(message);
  if (Fails("invoke")) return kRefused;
  if (count > kMaxQueueBuffers) return kBadParameter;
  for (uint32_t i = 0; i < count; ++i) {
    if (buffers[i].file != static_cast<uint32_t>(dsp.own_file)) return kBadParameter;
    if (buffers[i].flags == (kFlushSender | kInvalidateRecipient))
      ToDsp(buffers[i].offset, buffers[i].bytes);
  }
  BeginList(message);
  if (Fails("hang") || Fails("silent")) return 0;
  return SendAll(MessageOf(ObjectMessage::kPacket, message, bytes)) ? 0 : kReset;
}

int dspqueue_read(void*, uint32_t*, uint32_t max_count, uint32_t* count, QueueBuffer* buffers,
                  uint32_t max_bytes, uint32_t* bytes, uint8_t* message, uint32_t timeout_us) {
  if (Fails("silent")) return kErrorExpired;
  FromObject answer;
  pollfd waited = {dsp.socket, POLLIN, 0};
  if (poll(&waited, 1, static_cast<int>(timeout_us / 1000)) == 0) return kErrorExpired;
  if (!ReceiveAll(&answer, 0)) return kReset;
  dsp.last = answer;
  *count = std::min(answer.buffer_count, max_count);
  for (uint32_t i = 0; i < *count; ++i) {
    const PacketBuffer& from = answer.buffers[i];
    buffers[i] = {from.file, from.bytes, from.offset, from.flags, 0};
    if (from.flags == (kFlushSender | kInvalidateRecipient)) ToHost(from.offset, from.bytes);
  }
  if (const int error = EndList(); error != 0) return error;
  if (Fails("nonsense")) answer.payload[0] ^= 255;
  *bytes = Fails("length") ? answer.bytes - 4 : answer.bytes;
  std::memcpy(message, answer.payload, std::min(*bytes, max_bytes));
  return 0;
}
#endif

// For tests: lists, bytes to the DSP and back since the handle was opened, what its object holds.
struct DoubleStatistics {
  int64_t lists, bytes_in, bytes_out;
  uint32_t vtcm_bytes, powered, mapped, threads, vtcm_taken, vtcm_returned;
  uint32_t vtcm_waits, vtcm_asks, vtcm_shared;
};
void runnel_double_statistics(DoubleStatistics* statistics) {
  const FromObject& last = dsp.last;
  *statistics = {dsp.lists,          dsp.bytes_in,    dsp.bytes_out,  last.vtcm_bytes,
                 last.powered,       last.mapped,     last.threads,   last.vtcm_taken,
                 last.vtcm_returned, last.vtcm_waits, last.vtcm_asks, last.vtcm_shared};
}

}  // extern "C"

}  // namespace runnel::hexagon
