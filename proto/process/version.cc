#include "proto/process/version.h"

#include "absl/strings/str_cat.h"

namespace runnel {

std::string VersionText(const std::string& program, int32_t protocol_version) {
  return absl::StrCat(program, " ", RUNNEL_VERSION, ", protocol ", protocol_version);
}

}  // namespace runnel
