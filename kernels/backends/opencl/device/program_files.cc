#include "kernels/backends/opencl/device/program_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace runnel::opencl {
namespace {

constexpr char kFormat[] = "runnel-program 1";
constexpr uint64_t kSeeds[] = {0xcbf29ce484222325u, 0x9ae16a3b2f90404fu};

// FNV-1a: the same everywhere.
uint64_t HashOf(absl::string_view text, uint64_t hash = kSeeds[0]) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string NameOf(absl::string_view subject) {
  return absl::StrCat(absl::Hex(HashOf(subject, kSeeds[0]), absl::kZeroPad16),
                      absl::Hex(HashOf(subject, kSeeds[1]), absl::kZeroPad16));
}

// The first line, which no other subject or content has.
std::string HeadOf(absl::string_view subject, absl::string_view program) {
  return absl::StrCat(kFormat, " ", NameOf(subject), " ", program.size(), " ",
                      absl::Hex(HashOf(program), absl::kZeroPad16), "\n");
}

}  // namespace

std::string DefaultProgramFolder() {
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches == '/')
    return absl::StrCat(caches, "/runnel/opencl");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return absl::StrCat(home, "/.cache/runnel/opencl");
  return "";
}

std::string ProgramFiles::PathOf(absl::string_view subject) const {
  return absl::StrCat(folder_, "/", NameOf(subject), ".program");
}

std::optional<std::string> ProgramFiles::Load(absl::string_view subject) const {
  if (!keeps()) return std::nullopt;
  const std::string path = PathOf(subject);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const absl::string_view program =
      absl::string_view(text).substr(std::min(text.find('\n'), text.size() - 1) + 1);
  if (!text.empty() && text == absl::StrCat(HeadOf(subject, program), program))
    return std::string(program);
  std::fprintf(stderr, "opencl: %s is damaged; its kernels are built again\n", path.c_str());
  return std::nullopt;
}

void ProgramFiles::Keep(absl::string_view subject, absl::string_view program) const {
  if (!keeps()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string path = PathOf(subject);
  // Several workers of a host may keep the same one: each file is whole.
  const std::string written = absl::StrCat(path, ".", getpid());
  std::ofstream file(written, std::ios::binary);
  file << HeadOf(subject, program) << program;
  file.close();
  if (file) std::filesystem::rename(written, path, error);
  if (!file || error) std::filesystem::remove(written, error);
}

}  // namespace runnel::opencl
