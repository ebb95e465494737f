# Gloo and the store of c10d, which LibTorch contains where it was built with distributed support, as it then says in a
# definition for its users. Sets PENSTOCK_FOUND_GLOO.
get_target_property(penstock_torch_definitions torch_cpu INTERFACE_COMPILE_DEFINITIONS)
set(PENSTOCK_FOUND_GLOO OFF)
if("USE_C10D_GLOO" IN_LIST penstock_torch_definitions)
  set(PENSTOCK_FOUND_GLOO ON)
endif()
