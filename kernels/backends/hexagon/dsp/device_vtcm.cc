// The tightly coupled memory of a device. The manager of compute resources reserves its place once and
// lends it for a list; a program of higher priority may ask for it meanwhile. Where the manager has
// none to lend, and on systems without one, older functions give a part for a list.
// Not verified on hardware.

#include "kernels/backends/hexagon/dsp/platform.h"

extern "C" {

// Longer than any system's.
struct ResourceAttributes {
  uint64_t words[32];
};
using ReleaseCallback = int (*)(unsigned resource, void* context);

__attribute__((weak)) int compute_resource_attr_init(ResourceAttributes* attributes);
__attribute__((weak)) int compute_resource_attr_set_vtcm_param_v2(ResourceAttributes* attributes,
                                                                  unsigned bytes,
                                                                  unsigned least_page_bytes,
                                                                  unsigned least_bytes);
__attribute__((weak)) int compute_resource_attr_set_cache_mode(ResourceAttributes* attributes,
                                                               uint8_t is_cached);
__attribute__((weak)) int compute_resource_attr_set_release_callback(ResourceAttributes* attributes,
                                                                     ReleaseCallback callback,
                                                                     void* context);
__attribute__((weak)) int compute_resource_attr_get_vtcm_ptr_v2(ResourceAttributes* attributes,
                                                                void** vtcm, unsigned* bytes);
// 0: it cannot be had.
__attribute__((weak)) unsigned compute_resource_acquire(ResourceAttributes* attributes,
                                                        unsigned timeout_us);
__attribute__((weak)) int compute_resource_release(unsigned resource);
__attribute__((weak)) int compute_resource_acquire_cached(unsigned resource, unsigned timeout_us);
__attribute__((weak)) int compute_resource_release_cached(unsigned resource);

void* HAP_request_VTCM(unsigned bytes, unsigned single_page);
__attribute__((weak)) void* HAP_request_async_VTCM(unsigned bytes, unsigned single_page,
                                                   unsigned timeout_us);
int HAP_release_VTCM(void* vtcm);

}  // extern "C"

namespace runnel::hexagon {
namespace {

constexpr int kOk = 0;
constexpr uint32_t kTimeoutUs = 1000000;
// Lists for which a manager lent nothing while the older functions gave everything: it is not asked
// again.
constexpr int kMostRefusals = 3;

class ManagedVtcm {
 public:
  // Null: it has none to lend within the time.
  Vtcm Hold(uint32_t most, uint32_t least, uint32_t timeout_us) {
    if (!IsThere() || refusals_ == kMostRefusals) return {};
    // In place of a part there may be more by now.
    if (vtcm_.bytes < most) Drop();
    if (resource_ == 0 && !Reserve(most, least, timeout_us)) return {};
    // Before: the system may ask before it has even returned from lending.
    SetAsked(0);
    if (compute_resource_acquire_cached(resource_, timeout_us) != kOk) return {};
    has_lent_ = true;
    return vtcm_;
  }

  bool has_lent() const { return has_lent_; }
  // Others gave everything although it lent nothing.
  void CountRefusal() {
    if (!has_lent_ && refusals_ < kMostRefusals) ++refusals_;
  }

  bool IsAsked() const { return __atomic_load_n(&asked_, __ATOMIC_ACQUIRE) != 0; }

  // After each list: programs of equal priority do not ask, they wait.
  void GiveBack() { compute_resource_release_cached(resource_); }

  // It is lent to nobody here.
  void Drop() {
    if (resource_ != 0) compute_resource_release(resource_);
    resource_ = 0;
  }

 private:
  static bool IsThere() {
    return compute_resource_attr_init != nullptr &&
           compute_resource_attr_set_vtcm_param_v2 != nullptr &&
           compute_resource_attr_set_cache_mode != nullptr &&
           compute_resource_attr_set_release_callback != nullptr &&
           compute_resource_attr_get_vtcm_ptr_v2 != nullptr &&
           compute_resource_acquire != nullptr && compute_resource_release != nullptr &&
           compute_resource_acquire_cached != nullptr && compute_resource_release_cached != nullptr;
  }

  bool Reserve(uint32_t most, uint32_t least, uint32_t timeout_us) {
    ResourceAttributes attributes = {};
    if (compute_resource_attr_init(&attributes) != kOk ||
        compute_resource_attr_set_cache_mode(&attributes, 1) != kOk ||
        compute_resource_attr_set_vtcm_param_v2(&attributes, most, 0, least) != kOk ||
        compute_resource_attr_set_release_callback(&attributes, OnAsked, this) != kOk) {
      return false;
    }
    const unsigned resource = compute_resource_acquire(&attributes, timeout_us);
    if (resource == 0) return false;
    void* base = nullptr;
    unsigned bytes = 0;
    if (compute_resource_attr_get_vtcm_ptr_v2(&attributes, &base, &bytes) != kOk ||
        base == nullptr || bytes < least) {
      compute_resource_release(resource);
      return false;
    }
    vtcm_ = {static_cast<uint8_t*>(base), bytes < most ? bytes : most};
    resource_ = resource;
    return true;
  }

  // On a thread of the system, which must not wait.
  static int OnAsked(unsigned, void* context) {
    static_cast<ManagedVtcm*>(context)->SetAsked(1);
    return kOk;
  }
  void SetAsked(uint32_t asked) { __atomic_store_n(&asked_, asked, __ATOMIC_RELEASE); }

  unsigned resource_ = 0;
  Vtcm vtcm_;
  bool has_lent_ = false;
  int refusals_ = 0;
  uint32_t asked_ = 0;
};

ManagedVtcm managed;
// Of a list, by the older functions.
uint8_t* requested = nullptr;
bool is_managed = false;

// What the older functions have at once.
Vtcm Request(uint32_t most, uint32_t least) {
  for (uint32_t bytes = most; bytes >= least; bytes = bytes / 2 & ~uint32_t{127}) {
    requested = static_cast<uint8_t*>(HAP_request_VTCM(bytes, 0));
    if (requested != nullptr) return {requested, bytes};
  }
  return {};
}

Vtcm RequestLater(uint32_t most) {
  requested = static_cast<uint8_t*>(HAP_request_async_VTCM(most, 0, kTimeoutUs));
  return {requested, most};
}

Vtcm HoldManaged(uint32_t most, uint32_t least, uint32_t timeout_us) {
  const Vtcm vtcm = managed.Hold(most, least, timeout_us);
  is_managed = vtcm.base != nullptr;
  return vtcm;
}

}  // namespace

// A part at once is worth more than the whole after a wait.
Vtcm HoldVtcm(uint32_t most, uint32_t least) {
  Vtcm vtcm = HoldManaged(most, least, 0);
  if (vtcm.base != nullptr) return vtcm;
  vtcm = Request(most, least);
  if (vtcm.bytes == most) managed.CountRefusal();
  if (vtcm.base != nullptr) return vtcm;
  if (managed.has_lent() || HAP_request_async_VTCM == nullptr)
    return HoldManaged(most, least, kTimeoutUs);
  return RequestLater(most);
}

bool IsVtcmAsked() { return is_managed && managed.IsAsked(); }

void RestVtcm() {
  if (is_managed) managed.GiveBack();
  is_managed = false;
  if (requested != nullptr) HAP_release_VTCM(requested);
  requested = nullptr;
}

void DropVtcm() { managed.Drop(); }

}  // namespace runnel::hexagon
