#include "partition/export/npz_file.h"

#include <zip.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

const char* NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "<f4";
    case DType::kInt8:
      return "|i1";
    case DType::kInt32:
      return "<i4";
    default:
      return nullptr;
  }
}

absl::StatusOr<std::string> ToNpy(const TensorData& tensor) {
  const char* type = NumpyType(tensor.dtype);
  if (type == nullptr)
    return absl::InternalError(absl::StrCat(tensor.name, ": a type that NumPy does not have"));
  return absl::StrCat(NpyHeader(type, tensor.shape.dims()), tensor.bytes);
}

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the archive cannot be made: ", what));
}

}  // namespace

std::string NpyHeader(absl::string_view type, absl::Span<const int64_t> dims) {
  std::string header = absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(dims, ", "), dims.size() == 1 ? ",), }" : "), }");
  constexpr size_t kPrefix = 10, kAlignment = 64;
  header.append(kAlignment - (kPrefix + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(header.size() % 256);
  prefix += static_cast<char>(header.size() / 256);
  return prefix + header;
}

absl::StatusOr<std::string> StateToNpz(const ModelSpec& model, const ModelState& state) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* buffer = zip_source_buffer_create(nullptr, 0, 0, &error);
  if (buffer == nullptr) return Failed(zip_error_strerror(&error));
  // Read again after the archive is closed.
  zip_source_keep(buffer);
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> kept(buffer, zip_source_free);
  zip_t* archive = zip_open_from_source(buffer, ZIP_TRUNCATE, &error);
  if (archive == nullptr) return Failed(zip_error_strerror(&error));
  std::vector<std::string> files;  // the archive reads them when it is closed
  size_t count = 0;
  for (const LayerState& layer : state.layers) count += layer.tensors.size();
  files.reserve(count);
  for (const LayerState& layer : state.layers) {
    const std::string& name = model.layers[static_cast<size_t>(layer.layer)].name;
    for (const TensorData& tensor : layer.tensors) {
      absl::StatusOr<std::string> npy = ToNpy(tensor);
      if (!npy.ok()) {
        zip_discard(archive);
        return npy.status();
      }
      const std::string& bytes = files.emplace_back(*std::move(npy));
      zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
      const int64_t at = zip_file_add(archive, absl::StrCat(name, ".", tensor.name, ".npy").c_str(),
                                      source, ZIP_FL_ENC_UTF_8 | ZIP_FL_OVERWRITE);
      if (at < 0 ||
          zip_set_file_compression(archive, static_cast<zip_uint64_t>(at), ZIP_CM_STORE, 0) != 0) {
        const std::string what = zip_strerror(archive);
        zip_discard(archive);
        return Failed(what);
      }
    }
  }
  if (zip_close(archive) != 0) {
    const std::string what = zip_strerror(archive);
    zip_discard(archive);
    return Failed(what);
  }
  zip_stat_t stat;
  if (zip_source_open(buffer) != 0 || zip_source_stat(buffer, &stat) != 0)
    return Failed(zip_error_strerror(zip_source_error(buffer)));
  std::string bytes(stat.size, '\0');
  const zip_int64_t read = zip_source_read(buffer, bytes.data(), bytes.size());
  zip_source_close(buffer);
  if (read != static_cast<zip_int64_t>(bytes.size())) return Failed("it cannot be read back");
  return bytes;
}

}  // namespace runnel
