#include "proto/crypto/sealed_file.h"

#include "absl/strings/str_cat.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

constexpr size_t kDigestBytes = 32;

std::string LittleEndian(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

uint64_t FromLittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

}  // namespace

std::string Seal(const SealedFormat& format, absl::string_view payload) {
  return absl::StrCat(format.magic, LittleEndian(format.version, 4),
                      LittleEndian(payload.size(), 8), Sha256(payload));
}

absl::StatusOr<absl::string_view> OpenSealed(const SealedFormat& format,
                                             absl::string_view content) {
  const absl::string_view magic = format.magic;
  if (content.substr(0, magic.size()) != magic.substr(0, content.size()) || content.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no ", format.what, " (its first bytes are others)"));
  }
  if (content.size() < static_cast<size_t>(kSealBytes)) {
    return absl::DataLossError("is truncated in its header");
  }
  absl::string_view rest = content.substr(magic.size());
  const uint64_t version = FromLittleEndian(rest.substr(0, 4));
  const uint64_t bytes = FromLittleEndian(rest.substr(4, 8));
  const absl::string_view digest = rest.substr(12, kDigestBytes);
  if (version != format.version) {
    return absl::UnimplementedError(
        absl::StrCat("has format version ", version, ", this program reads ", format.version));
  }
  const absl::string_view payload = content.substr(kSealBytes);
  if (payload.size() < bytes) {
    return absl::DataLossError(
        absl::StrCat("is truncated: has ", payload.size(), " of ", bytes, " payload bytes"));
  }
  if (payload.size() > bytes || Sha256(payload) != digest) {
    return absl::DataLossError("is damaged: its contents do not fit its checksum");
  }
  return payload;
}

}  // namespace runnel
