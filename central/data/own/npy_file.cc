#include "central/data/own/npy_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel::data {

struct NpyElement {
  absl::string_view name;  // NumPy's, without the byte order
  int64_t bytes;
  double (*number)(const char* bytes);
};

namespace {

constexpr size_t kMaxHeader = 65'536;
constexpr int64_t kMaxSampleElements = int64_t{1} << 26;
constexpr int64_t kMaxSamples = int64_t{1} << 31;

static_assert(std::endian::native == std::endian::little, "types are read as they lie in the file");

template <typename T>
double ToNumber(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<double>(value);
}

constexpr NpyElement kTypes[] = {
    {"f4", 4, ToNumber<float>},    {"f8", 8, ToNumber<double>},   {"u1", 1, ToNumber<uint8_t>},
    {"i1", 1, ToNumber<int8_t>},   {"u2", 2, ToNumber<uint16_t>}, {"i2", 2, ToNumber<int16_t>},
    {"u4", 4, ToNumber<uint32_t>}, {"i4", 4, ToNumber<int32_t>},  {"u8", 8, ToNumber<uint64_t>},
    {"i8", 8, ToNumber<int64_t>},  {"b1", 1, ToNumber<uint8_t>},
};

}  // namespace

NpyFile::NpyFile(std::string path) : path_(std::move(path)) {}

NpyFile::~NpyFile() {
  if (file_ >= 0) close(file_);
}

absl::StatusOr<std::unique_ptr<NpyFile>> NpyFile::Open(const std::string& path) {
  auto file = std::unique_ptr<NpyFile>(new NpyFile(path));
  RUNNEL_RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

bool NpyFile::holds_bytes() const { return type_->name == "u1"; }

bool NpyFile::holds_floats() const { return type_->name[0] == 'f'; }

int64_t NpyFile::data_bytes() const { return lseek(file_, 0, SEEK_END) - begin_; }

absl::Status NpyFile::Read(int64_t row, absl::Span<double> out) const {
  const int64_t bytes = std::ssize(out) * type_->bytes;
  std::vector<char> buffer(static_cast<size_t>(bytes));
  if (pread(file_, buffer.data(), buffer.size(), begin_ + row * bytes) != bytes)
    return absl::DataLossError(absl::StrCat(path_, ": cannot be read any more"));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = type_->number(buffer.data() + static_cast<int64_t>(i) * type_->bytes);
  return absl::OkStatus();
}

absl::Status NpyFile::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(Printable(absl::StrCat(path_, ": ", what)));
}

// \x93NUMPY, the version, the header's length, then a dictionary as Python writes it.
absl::Status NpyFile::ReadHeader() {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) return absl::NotFoundError(absl::StrCat(path_, ": ", strerror(errno)));
  char head[12] = {};
  if (pread(file_, head, sizeof(head), 0) != sizeof(head) || std::memcmp(head, "\x93NUMPY", 6) != 0)
    return Wrong("is no .npy file");
  const bool is_first = head[6] == 1;
  if (!is_first && head[6] != 2 && head[6] != 3)
    return Wrong(absl::StrCat("is of version ", int{head[6]}, "; 1 to 3 are known"));
  const auto byte = [&head](int i) { return static_cast<size_t>(static_cast<uint8_t>(head[i])); };
  const size_t length =
      is_first ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  const size_t at = is_first ? 10 : 12;
  if (length > kMaxHeader) return Wrong("its header is too long");
  std::string header(length, '\0');
  if (pread(file_, header.data(), length, static_cast<off_t>(at)) != std::ssize(header))
    return Wrong("ends within its header");
  begin_ = static_cast<int64_t>(at + length);
  return ReadFields(header);
}

absl::Status NpyFile::ReadFields(absl::string_view header) {
  const auto behind = [header](absl::string_view key) {
    const size_t place = header.find(absl::StrCat("'", key, "':"));
    if (place == absl::string_view::npos) return absl::string_view();
    return absl::StripLeadingAsciiWhitespace(header.substr(place + key.size() + 3));
  };
  const absl::string_view type = behind("descr");
  const size_t end = type.find('\'', 1);
  if (type.empty() || type[0] != '\'' || end == absl::string_view::npos)
    return Wrong("its elements are no plain numbers");
  const absl::string_view name = type.substr(1, end - 1);
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NpyElement& t) {
    return absl::EndsWith(name, t.name) && name.size() == t.name.size() + 1;
  });
  const bool is_ours = row != std::end(kTypes) && (name[0] != '>' || row->bytes == 1);
  if (!is_ours) {
    return Wrong(absl::StrCat("its elements are ", name.substr(0, 20),
                              "; floats of 4 or 8 bytes and integers, little-endian, are read: "
                              "save it with astype('float32'), labels with astype('int64')"));
  }
  type_ = row;
  if (absl::StartsWith(behind("fortran_order"), "True"))
    return Wrong("lies in Fortran's order; save it with numpy.ascontiguousarray");
  absl::string_view shape = behind("shape");
  if (!absl::ConsumePrefix(&shape, "(") || shape.find(')') == absl::string_view::npos)
    return Wrong("has no shape");
  return ReadShape(shape.substr(0, shape.find(')')));
}

absl::Status NpyFile::ReadShape(absl::string_view text) {
  std::vector<int64_t> dims;
  int64_t elements = 1;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim < 1 || dim > kMaxSamples)
      return Wrong(absl::StrCat("its shape is (", text.substr(0, 60), "): every part must be 1 to ",
                                kMaxSamples));
    dims.push_back(dim);
    if (dims.size() == 1) continue;
    elements *= dim;
    if (elements > kMaxSampleElements) return Wrong("its samples are too large");
  }
  if (dims.empty()) return Wrong("is a single number");
  count_ = dims[0];
  dims_.assign(dims.begin() + 1, dims.end());
  const int64_t needed = begin_ + count_ * elements * type_->bytes;
  const int64_t size = lseek(file_, 0, SEEK_END);
  if (size != needed) return Wrong(absl::StrCat("has ", size, " bytes, its shape needs ", needed));
  return absl::OkStatus();
}

// InvalidArgument: the row holds a number that is not finite, or no FP32 is.
absl::Status CheckFinite(const NpyFile& file, int64_t row, absl::Span<const double> numbers) {
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](double v) {
    return !(std::abs(v) <= std::numeric_limits<float>::max());
  });
  if (bad == numbers.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": sample ", row, " holds ", *bad,
                                                 "; mend or leave out the sample"));
}

}  // namespace runnel::data
