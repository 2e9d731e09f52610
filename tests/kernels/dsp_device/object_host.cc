// A DSP's system for one shared object, under qemu-hexagon: loads the object of file 4 as a loader
// would, gives it the functions that it asks for, and passes it what comes from file 0. File 3 is
// the memory as the DSP sees it. A file 77 says that the system is an old one, without the functions
// that came later; a file 78 that it has no manager of compute resources alone.

#include "kernels/backends/hexagon/dsp/emulator_threads.h"
#include "kernels/backends/hexagon/op_list.h"
#include "tests/kernels/dsp_device/object_messages.h"
#include "tests/kernels/dsp_device/object_vtcm.h"

namespace runnel::hexagon {
namespace {

constexpr int32_t kIn = 0, kOut = 1, kErrors = 2, kSharedFile = 3, kObjectFile = 4;
constexpr int32_t kOldSystemFile = 77, kUnmanagedFile = 78;
constexpr int kWouldBlock = 516;

using QueueCallback = void (*)(void* queue, int error, void* context);

bool is_read = true;  // the packet
QueueCallback packets = nullptr;
void* context = nullptr;

void Copy(void* to, const void* from, uint32_t bytes) {
  auto* target = static_cast<volatile uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  for (uint32_t i = 0; i < bytes; ++i) target[i] = source[i];
}

[[noreturn]] void Fail(const char* why, const char* name) {
  const char* const texts[] = {"object: ", why, name, "\n"};
  for (const char* text : texts) {
    int32_t length = 0;
    while (text[length] != 0) ++length;
    WriteAll(kErrors, text, length);
  }
  Exit(9);
}

// The functions of the system.
int MapOf(int, void** address, uint64_t*) {
  *address = Map(message.shared_bytes, kSharedFile);
  answer.mapped = *address == nullptr ? 0 : 1;
  return *address == nullptr ? 1 : 0;
}
int Unmap(int) {
  answer.mapped = 0;
  return 0;
}
int SetPower(void*, void* request) {
  const auto* words = static_cast<const uint32_t*>(request);
  constexpr uint32_t kVectors = 2;
  if (words[0] == kVectors) answer.powered = words[2] & 1;
  return 0;
}
int ImportQueue(uint64_t id, QueueCallback packet, QueueCallback, void* with, void** queue) {
  packets = packet;
  context = with;
  *queue = reinterpret_cast<void*>(static_cast<uintptr_t>(id));
  return 0;
}
int CloseQueue(void*) {
  packets = nullptr;
  return 0;
}
int ReadPacket(void*, uint32_t*, uint32_t, uint32_t* buffers, PacketBuffer*, uint32_t max_bytes,
               uint32_t* bytes, uint8_t* to) {
  if (is_read) return kWouldBlock;
  is_read = true;
  *buffers = 0;
  *bytes = message.bytes < max_bytes ? message.bytes : max_bytes;
  Copy(to, message.payload, *bytes);
  return 0;
}
int WritePacket(void*, uint32_t, uint32_t buffers, PacketBuffer* buffer, uint32_t bytes,
                const uint8_t* from, uint32_t) {
  if (buffers > kMaxPacketBuffers || bytes > kMaxPayload) return 1;
  answer.kind = ObjectMessage::kPacket;
  answer.buffer_count = buffers;
  for (uint32_t i = 0; i < buffers; ++i) answer.buffers[i] = buffer[i];
  answer.bytes = bytes;
  Copy(answer.payload, from, bytes);
  WriteAll(kOut, &answer, sizeof(answer));
  return 0;
}

// Threads, with numbers from 1 on.
constexpr uint32_t kThreads = 8;
EmulatedThread threads[kThreads];
int CreateThread(uint32_t* number, const void* attributes, void (*body)(void*), void* with) {
  if (message.ask_vtcm == 1 || message.ask_vtcm == 2) AskForVtcm();
  other_keeps_it = message.ask_vtcm == 2;
  uint32_t words[2];  // stack_size, stack_addr
  Copy(words, static_cast<const uint8_t*>(attributes) + 24, sizeof(words));
  for (uint32_t i = 0; i < kThreads; ++i) {
    if (threads[i].alive != 0) continue;
    *number = i + 1;
    auto* stack = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(words[1]));
    if (!StartThread(threads[i], stack, words[0], body, with)) return 1;
    ++answer.threads;
    return 0;
  }
  return 1;
}
int JoinNumbered(uint32_t number, int* status) {
  if (number < 1 || number > kThreads) return 1;
  JoinThread(threads[number - 1]);
  *status = 0;
  return 0;
}
void EndThread(int) {
  constexpr int32_t kExit = 93;
  for (;;) SystemCall(kExit, 0);
}
int PriorityOf(uint32_t) { return 192; }
uint32_t ThisThread() { return 1; }

struct Function {
  const char* name;
  uint32_t address;
};
template <typename F>
Function Of(const char* name, F* function) {
  return {name, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(function))};
}

bool Same(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}

// 0: there is none.
uint32_t AddressOfSystem(const char* name) {
  const Function functions[] = {
      Of("HAP_mmap_get", MapOf), Of("HAP_mmap_put", Unmap), Of("HAP_power_set", SetPower),
      Of("HAP_request_VTCM", RequestVtcm), Of("HAP_release_VTCM", ReleaseVtcm),
      // Of newer systems alone.
      Of("HAP_request_async_VTCM", AwaitVtcm), Of("dspqueue_import", ImportQueue),
      Of("dspqueue_close", CloseQueue), Of("dspqueue_read_noblock", ReadPacket),
      Of("dspqueue_write", WritePacket), Of("qurt_thread_create", CreateThread),
      Of("qurt_thread_join", JoinNumbered), Of("qurt_thread_exit", EndThread),
      Of("qurt_thread_get_priority", PriorityOf), Of("qurt_thread_get_id", ThisThread),
      Of("compute_resource_attr_init", BeginAttributes),
      Of("compute_resource_attr_set_vtcm_param_v2", SetVtcm),
      Of("compute_resource_attr_set_cache_mode", SetCached),
      Of("compute_resource_attr_set_release_callback", SetCallback),
      Of("compute_resource_attr_get_vtcm_ptr_v2", ReadVtcm),
      Of("compute_resource_acquire", AcquireResource),
      Of("compute_resource_release", ReleaseResource),
      Of("compute_resource_acquire_cached", AcquireCached),
      Of("compute_resource_release_cached", ReleaseCached)};
  constexpr int kOld = 5, kManager = 9, kAll = sizeof(functions) / sizeof(Function);
  const auto is_open = [](int32_t file) {
    return SystemCall(kRead, file, AddressOf(answer.payload), 0) >= 0;
  };
  const int count = is_open(kOldSystemFile)   ? kOld
                    : is_open(kUnmanagedFile) ? kAll - kManager
                                              : kAll;
  for (int i = 0; i < count; ++i) {
    if (Same(functions[i].name, name)) return functions[i].address;
  }
  return 0;
}

struct ElfHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version, entry, program_headers, section_headers, flags;
  uint16_t header_bytes, program_header_bytes, program_header_count;
};
struct Segment {
  uint32_t type, offset, address, physical, file_bytes, bytes, flags, alignment;
};
struct Dynamic {
  uint32_t tag, value;
};
struct Symbol {
  uint32_t name, value, bytes;
  uint8_t info, other;
  uint16_t section;
};
struct Relocation {
  uint32_t offset, info;
  int32_t addend;
};

// Loads the object and finds its entry.
class Loader {
 public:
  uint32_t Load(const char* entry) {
    constexpr uint32_t kMostBytes = 4 << 20;
    uint8_t* file = Map(kMostBytes, -1);
    image_ = Map(kMostBytes, -1, kReadWriteRun);
    if (file == nullptr || image_ == nullptr) Fail("finds no memory", "");
    for (uint32_t at = 0; at < kMostBytes;) {
      const int32_t got = SystemCall(kRead, kObjectFile, AddressOf(file + at),
                                     static_cast<int32_t>(kMostBytes - at));
      if (got < 0) Fail("cannot be read", "");
      if (got == 0) break;
      at += static_cast<uint32_t>(got);
    }
    const auto& header = *reinterpret_cast<const ElfHeader*>(file);
    const auto* segments = reinterpret_cast<const Segment*>(file + header.program_headers);
    constexpr uint32_t kLoad = 1, kDynamic = 2;
    uint32_t dynamic = 0;
    for (int i = 0; i < header.program_header_count; ++i) {
      const Segment& segment = segments[i];
      if (segment.type == kLoad)
        Copy(image_ + segment.address, file + segment.offset, segment.file_bytes);
      if (segment.type == kDynamic) dynamic = segment.address;
    }
    ReadDynamic(dynamic);
    Relocate(table_[kRela], table_[kRelaBytes]);
    Relocate(table_[kJumpRela], table_[kJumpRelaBytes]);
    return Find(entry);
  }

 private:
  enum Tag {
    kNeeded = 1,
    kJumpRelaBytes = 2,
    kHash = 4,
    kStrings = 5,
    kSymbols = 6,
    kRela = 7,
    kRelaBytes = 8,
    kJumpRela = 23,
    kTags = 32
  };

  template <typename T>
  T* At(uint32_t address) const {
    return reinterpret_cast<T*>(image_ + address);
  }
  const Symbol& SymbolAt(uint32_t i) const { return At<const Symbol>(table_[kSymbols])[i]; }
  const char* NameOf(const Symbol& symbol) const {
    return At<const char>(table_[kStrings] + symbol.name);
  }

  void ReadDynamic(uint32_t address) {
    for (const auto* entry = At<const Dynamic>(address); entry->tag != 0; ++entry) {
      if (entry->tag == kNeeded) Fail("needs ", At<const char>(table_[kStrings] + entry->value));
      if (entry->tag < kTags) table_[entry->tag] = entry->value;
    }
  }

  uint32_t Resolve(const Symbol& symbol) const {
    constexpr uint8_t kWeak = 2;
    if (symbol.section != 0) return AddressIn(symbol.value);
    const uint32_t address = AddressOfSystem(NameOf(symbol));
    if (address == 0 && symbol.info >> 4 != kWeak) Fail("asks for ", NameOf(symbol));
    return address;
  }

  uint32_t AddressIn(uint32_t value) const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(image_)) + value;
  }

  void Relocate(uint32_t table, uint32_t bytes) {
    constexpr uint32_t kWord = 6, kGlobal = 33, kJump = 34, kRelative = 35;
    const auto* all = At<const Relocation>(table);
    for (uint32_t i = 0; i < bytes / sizeof(Relocation); ++i) {
      const Relocation& one = all[i];
      uint32_t& place = *At<uint32_t>(one.offset);
      const uint32_t kind = one.info & 255;
      if (kind == kRelative) {
        place = AddressIn(static_cast<uint32_t>(one.addend));
      } else if (kind == kWord || kind == kGlobal || kind == kJump) {
        place = Resolve(SymbolAt(one.info >> 8)) + static_cast<uint32_t>(one.addend);
      } else {
        Fail("has a relocation that nobody knows", "");
      }
    }
  }

  uint32_t Find(const char* name) const {
    const uint32_t count = At<const uint32_t>(table_[kHash])[1];
    for (uint32_t i = 0; i < count; ++i) {
      const Symbol& symbol = SymbolAt(i);
      if (symbol.section != 0 && Same(NameOf(symbol), name)) return AddressIn(symbol.value);
    }
    Fail("has no ", name);
  }

  uint8_t* image_ = nullptr;
  uint32_t table_[kTags] = {};
};

#define RUNNEL_TEXT_OF(name) #name
#define RUNNEL_TEXT(name) RUNNEL_TEXT_OF(name)

struct RemoteBuffer {
  void* data;
  uint32_t bytes;
};
using Entry = int (*)(uint64_t handle, uint32_t scalars, RemoteBuffer* buffers);

void Invoke(Entry entry) {
  RemoteBuffer buffers[2 * 256] = {};
  const uint32_t in = message.scalars >> 16 & 255, out = message.scalars >> 8 & 255;
  if (in > 0) buffers[0] = {message.payload, message.bytes};
  answer.kind = ObjectMessage::kInvoke;
  answer.buffer_count = 0;
  answer.bytes = out > 0 ? message.out_bytes : 0;
  if (out > 0) buffers[in] = {answer.payload, answer.bytes};
  answer.result = entry(1, message.scalars, buffers);
  WriteAll(kOut, &answer, sizeof(answer));
}

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, unsigned bytes) {
  Copy(to, from, bytes);
  return to;
}
void* memset(void* to, int value, unsigned bytes) {
  for (uint32_t i = 0; i < bytes; ++i)
    static_cast<volatile uint8_t*>(to)[i] = static_cast<uint8_t>(value);
  return to;
}
void __hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void* to, const void* from,
                                                           unsigned bytes) {
  Copy(to, from, bytes);
}

[[noreturn]] void Serve() {
  Loader loader;
  const auto entry =
      reinterpret_cast<Entry>(static_cast<uintptr_t>(loader.Load(RUNNEL_TEXT(RUNNEL_DSP_ENTRY))));
  while (ReadAll(kIn, &message, sizeof(message))) {
    LetOtherTake();
    if (message.kind == ObjectMessage::kInvoke) {
      Invoke(entry);
    } else if (packets != nullptr) {
      is_read = false;
      packets(nullptr, 0, context);
    }
  }
  Exit(0);
}

// The object has to see to the alignment of vectors on its stack itself.
__attribute__((naked, noreturn)) void _start() {
  __asm__ volatile("{ r29 = and(r29, #-128) }\n{ r29 = add(r29, #-8) }\n{ call Serve }\n");
}

}  // extern "C"

}  // namespace runnel::hexagon
