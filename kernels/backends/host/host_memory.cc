#include "kernels/backends/host/host_memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/host/huge_pages.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};
using HostBytes = std::unique_ptr<std::byte, Free>;

class HostMemory final : public Memory {
 public:
  HostMemory(HostBytes data, int64_t bytes) : data_(std::move(data)), bytes_(bytes) {}

  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override { return data_.get(); }
  absl::StatusOr<std::byte*> Map(MapAccess) override { return data_.get(); }
  void Unmap() override {}

 private:
  HostBytes data_;
  int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> AllocateHostMemory(int64_t bytes) {
  const size_t alignment = AreaAlignment(bytes);
  const size_t size = (static_cast<size_t>(bytes) / alignment + 1) * alignment;
  HostBytes data(static_cast<std::byte*>(std::aligned_alloc(alignment, size)));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  AdviseHugePages(data.get(), bytes);
  std::memset(data.get(), 0, static_cast<size_t>(bytes));
  return std::make_unique<HostMemory>(std::move(data), bytes);
}

absl::StatusOr<std::unique_ptr<Memory>> Backend::Allocate(int64_t bytes) {
  return AllocateHostMemory(bytes);
}

absl::StatusOr<Mapping> Mapping::Of(Memory& memory, MapAccess access) {
  RUNNEL_ASSIGN_OR_RETURN(std::byte * data, memory.Map(access));
  return Mapping(memory, data);
}

}  // namespace runnel
