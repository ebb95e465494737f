// The public header of the module `trace`: recordings of the instructions of each rank, accounts of their time, and
// pictures of measured and simulated steps.
#pragma once

#include "penstock/trace/account.h"
#include "penstock/trace/check_order.h"
#include "penstock/trace/chrome.h"
#include "penstock/trace/pictures.h"
#include "penstock/trace/recorder.h"
#include "penstock/trace/schedule_table.h"
