// The program without tokenizers (PENSTOCK_TEXT=OFF), as in the Python package.
#include "penstock/cli/verbs.h"

namespace penstock::cli {

void add_tokenize_verb(CLI::App& /*program*/) {}

}  // namespace penstock::cli
