#include "central/records/weights_digest.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(absl::string_view bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string Digest() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
    digest.resize(size);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, FreeContext> context_;
};

void AddTensors(const ModelState& state, bool buffers, Hasher& sha) {
  for (const LayerState& layer : state.layers) {
    for (const TensorData& tensor : layer.tensors) {
      if (IsBufferName(tensor.name) != buffers) continue;
      sha.Add(absl::StrCat(layer.layer, ".", tensor.name, " ", Name(tensor.dtype), " ",
                           tensor.shape.ToString(), "\n"));
      sha.Add(tensor.bytes);
    }
  }
}

}  // namespace

bool IsBufferName(absl::string_view tensor_name) {
  return absl::EndsWith(tensor_name, ".running_mean") ||
         absl::EndsWith(tensor_name, ".running_var") || absl::EndsWith(tensor_name, ".exponent");
}

std::string WeightsSha256(const ModelState& state) {
  Hasher sha;
  AddTensors(state, /*buffers=*/false, sha);
  AddTensors(state, /*buffers=*/true, sha);
  return absl::BytesToHexString(sha.Digest());
}

std::string Sha256(absl::string_view bytes) {
  Hasher sha;
  sha.Add(bytes);
  return sha.Digest();
}

std::string Sha256Hex(absl::string_view bytes) { return absl::BytesToHexString(Sha256(bytes)); }

}  // namespace runnel
