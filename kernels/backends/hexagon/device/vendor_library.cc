#include "kernels/backends/hexagon/device/vendor_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel::hexagon {
namespace {

constexpr char kName[] = "libcdsprpc.so";
// Folders of Android, then of Linux distributions.
constexpr const char* kFolders[] = {
    "/vendor/lib64",  "/system/vendor/lib64", "/system/lib64", "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib", "/usr/lib64",           "/usr/lib"};

#ifdef RUNNEL_STATIC_BINARY
void* Load(const std::string&) { return nullptr; }
void* FindFunction(void*, const char*) { return nullptr; }
std::string WhyNotLoaded() { return "this worker is one static file, which loads no libraries"; }
#else
void* Load(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}
void* FindFunction(void* library, const char* name) { return dlsym(library, name); }
std::string WhyNotLoaded() {
  const char* why = dlerror();
  return why == nullptr ? "no reason given" : why;
}
#endif

// Resolves names and remembers the first one that is not there.
class Resolver {
 public:
  explicit Resolver(void* library) : library_(library) {}

  template <typename Function>
  void Need(const char* name, Function* function) {
    Want(name, function);
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  template <typename Function>
  void Want(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(FindFunction(library_, name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

struct ErrorName {
  int bits;
  const char* name;
};
constexpr ErrorName kErrorNames[] = {
    {0x002, "no memory"},          {0x00c, "no answer in time"},  {0x00e, "bad parameter"},
    {0x014, "not supported"},      {0x015, "no permission"},      {0x027, "no such name"},
    {0x039, "no such DSP"},        {0x042, "no such symbol"},     {0x044, "no such file"},
    {0x048, "memory not mapped"},  {0x052, "bad shared object"},  {0x068, "connection reset"},
    {0x072, "connection refused"}, {0x081, "no unsigned object"},
};

}  // namespace

absl::StatusOr<std::string> FindVendorLibrary(const std::string& given) {
  if (!given.empty()) {
    // A name alone: the system's loader knows where.
    if (given.find('/') == std::string::npos) return given;
    if (access(given.c_str(), R_OK) == 0) return given;
    return absl::NotFoundError(absl::StrCat(given, " is not there"));
  }
  for (const char* folder : kFolders) {
    std::string path = absl::StrCat(folder, "/", kName);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return absl::NotFoundError(absl::StrCat(kName, " is in none of ", absl::StrJoin(kFolders, ", ")));
}

absl::StatusOr<std::shared_ptr<const VendorLibrary>> LoadVendorLibrary(const std::string& path) {
  void* loaded = Load(path);
  if (loaded == nullptr) {
    return absl::UnavailableError(absl::StrCat(path, " cannot be loaded: ", WhyNotLoaded()));
  }
  auto library = std::make_shared<VendorLibrary>();
  library->path = path;
  Resolver resolver(loaded);
  resolver.Need("rpcmem_alloc", &library->memory.alloc);
  resolver.Need("rpcmem_free", &library->memory.free);
  resolver.Need("rpcmem_to_fd", &library->memory.to_fd);
  resolver.Need("fastrpc_mmap", &library->memory.map);
  resolver.Need("fastrpc_munmap", &library->memory.unmap);
  resolver.Need("remote_handle64_open", &library->calls.open);
  resolver.Need("remote_handle64_close", &library->calls.close);
  resolver.Need("remote_handle64_invoke", &library->calls.invoke);
  resolver.Need("remote_handle64_control", &library->calls.handle_control);
  resolver.Need("remote_handle_control", &library->calls.control);
  resolver.Need("remote_session_control", &library->calls.session_control);
  resolver.Want("dspqueue_create", &library->queues.create);
  resolver.Want("dspqueue_close", &library->queues.close);
  resolver.Want("dspqueue_export", &library->queues.export_id);
  resolver.Want("dspqueue_write", &library->queues.write);
  resolver.Want("dspqueue_read", &library->queues.read);
  if (resolver.missing().empty()) return library;
  return absl::UnavailableError(absl::StrCat(path, " has no ", resolver.missing()));
}

std::string DescribeVendorError(int error) {
  const std::string number = absl::StrCat("error 0x", absl::Hex(static_cast<uint32_t>(error)));
  for (const ErrorName& known : kErrorNames) {
    if (known.bits == (error & kErrorBits)) return absl::StrCat(number, " (", known.name, ")");
  }
  return number;
}

}  // namespace runnel::hexagon
