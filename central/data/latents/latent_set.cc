#include "central/data/latents/latent_set.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// The file: kMagic, Header, dims[rank] (int64), labels[samples] (int32), codes.
constexpr absl::string_view kMagic = "RNLLATN1";
constexpr size_t kTypeName = 8;
constexpr int64_t kMostClasses = int64_t{1} << 20;
struct Header {
  char type[kTypeName] = {};
  int64_t classes = 0;
  int64_t session = 0;
  int64_t new_samples = 0;
  int64_t samples = 0;
  int64_t rank = 0;
};

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("holds no latents: ", what));
}

template <typename T>
bool Take(absl::string_view& bytes, T* to, size_t count) {
  if (bytes.size() / sizeof(T) < count) return false;
  std::memcpy(to, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return true;
}

template <typename T>
void Append(const T* from, size_t count, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(from), count * sizeof(T));
}

}  // namespace

absl::Status LatentSet::Add(absl::Span<const float> values, int32_t label) {
  if (std::ssize(values) != shape_.elements() || label < 0 || label >= classes_) {
    return absl::InvalidArgumentError(absl::StrCat("a latent of ", values.size(),
                                                   " values and label ", label, " in a set of ",
                                                   shape_.ToString()));
  }
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError(
        "a latent has a value that is infinite or no number; the model did not train well");
  }
  const size_t at = codes_.size();
  codes_.resize(at + static_cast<size_t>(bytes_each()));
  type_->encode(values, codes_.data() + at);
  labels_.push_back(label);
  return absl::OkStatus();
}

void LatentSet::AddFrom(const LatentSet& other, absl::Span<const int64_t> indices) {
  const auto each = static_cast<size_t>(bytes_each());
  for (const int64_t index : indices) {
    codes_.append(other.codes_, static_cast<size_t>(index) * each, each);
    labels_.push_back(other.labels_[static_cast<size_t>(index)]);
  }
}

std::string LatentSet::Serialize() const {
  Header header = {
      .classes = classes_, .session = session, .new_samples = new_samples, .samples = size()};
  std::copy_n(type_->name.begin(), std::min(type_->name.size(), kTypeName), header.type);
  header.rank = static_cast<int64_t>(shape_.dims().size());
  std::string bytes(kMagic);
  bytes.reserve(bytes.size() + sizeof(header) + labels_.size() * sizeof(int32_t) + codes_.size() +
                64);
  Append(&header, 1, bytes);
  for (const int64_t dim : shape_.dims()) Append(&dim, 1, bytes);
  Append(labels_.data(), labels_.size(), bytes);
  bytes += codes_;
  return bytes;
}

absl::StatusOr<LatentSet> LatentSet::Parse(absl::string_view bytes) {
  Header header;
  if (!absl::ConsumePrefix(&bytes, kMagic) || !Take(bytes, &header, 1))
    return Wrong("it begins otherwise");
  const absl::string_view name(header.type, strnlen(header.type, kTypeName));
  RUNNEL_ASSIGN_OR_RETURN(const LatentType* type, FindLatentType(name));
  const auto most = static_cast<int64_t>(bytes.size());
  if (header.rank < 1 || header.rank > 4 || header.classes < 1 || header.classes > kMostClasses ||
      header.samples < 1 || header.samples > most || header.new_samples < 0 ||
      header.new_samples > header.samples || header.session < 0)
    return Wrong("a count is out of range");
  std::vector<int64_t> dims(static_cast<size_t>(header.rank));
  if (!Take(bytes, dims.data(), dims.size())) return Wrong("it ends within its shape");
  RUNNEL_ASSIGN_OR_RETURN(Shape shape, Shape::Create(dims));
  LatentSet set(type, std::move(shape), header.classes);
  set.new_samples = header.new_samples;
  set.session = header.session;
  set.labels_.resize(static_cast<size_t>(header.samples));
  if (!Take(bytes, set.labels_.data(), set.labels_.size()))
    return Wrong("it ends within its labels");
  const bool in_range = std::all_of(set.labels_.begin(), set.labels_.end(), [&](int32_t label) {
    return label >= 0 && label < header.classes;
  });
  if (!in_range) return Wrong("a label is out of range");
  if (static_cast<int64_t>(bytes.size()) / set.bytes_each() != header.samples ||
      static_cast<int64_t>(bytes.size()) % set.bytes_each() != 0)
    return Wrong("its latents have another number of bytes");
  set.codes_ = std::string(bytes);
  return set;
}

}  // namespace runnel
