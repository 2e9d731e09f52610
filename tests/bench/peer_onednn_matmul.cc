#include <cstring>
#include <dnnl.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/peer_onednn.h"

namespace runnel::bench {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

struct Types {
  Type a, b, c;
};

Types TypesOf(MatmulType type) {
  switch (type) {
    case MatmulType::kS8S8S32:
      return {Type::s8, Type::s8, Type::s32};
    case MatmulType::kU8S8S32:
      return {Type::u8, Type::s8, Type::s32};
    case MatmulType::kF32:
      break;
  }
  return {Type::f32, Type::f32, Type::f32};
}

class Matmul : public OneDnnMatmul {
 public:
  Matmul(MatmulType type, WeightsAre weights, int64_t m, int64_t n, int64_t k, const void* a,
         const void* b)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Types types = TypesOf(type);
    const dnnl::memory::desc given({k, n}, types.b, Tag::ba);
    const bool chosen = weights == WeightsAre::kPackedInside || weights == WeightsAre::kPrePacked;
    const Tag tag = chosen ? Tag::any : weights == WeightsAre::kColumns ? Tag::ba : Tag::ab;
    const dnnl::memory::desc wanted({k, n}, types.b, tag);
    const dnnl::memory::desc rows({m, k}, types.a, Tag::ab), result({m, n}, types.c, Tag::ab);
    const dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(rows, wanted, result), engine_);
    a_ = dnnl::memory(rows, engine_);
    b_ = dnnl::memory(given, engine_);
    packed_ = dnnl::memory(primitive.weights_desc(), engine_);
    c_ = dnnl::memory(result, engine_);
    std::memcpy(a_.get_data_handle(), a, rows.get_size());
    std::memcpy(b_.get_data_handle(), b, given.get_size());
    pack_ = dnnl::reorder(b_, packed_);
    multiply_ = dnnl::matmul(primitive);
    packs_ = weights == WeightsAre::kPackedInside;
    pack_.execute(stream_, b_, packed_);
    stream_.wait();
  }

  void Run() override {
    if (packs_) pack_.execute(stream_, b_, packed_);
    multiply_.execute(stream_,
                      {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, packed_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }
  const void* output() const override { return c_.get_data_handle(); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, packed_, c_;
  dnnl::reorder pack_;
  dnnl::matmul multiply_;
  bool packs_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OneDnnMatmul>> MakeOneDnnMatmul(MatmulType type, WeightsAre weights,
                                                               int64_t m, int64_t n, int64_t k,
                                                               const void* a, const void* b) {
  try {
    return std::make_unique<Matmul>(type, weights, m, n, k, a, b);
  } catch (const dnnl::error& error) {
    return absl::UnimplementedError(absl::StrCat("oneDNN matmul: ", error.what()));
  }
}

}  // namespace runnel::bench
