# SPDX-License-Identifier: Apache-2.0

variable "namespace_name" {
  description = "The name of the namespace, contoso in contoso.servicebus.windows.net."
  type        = string
}

variable "resource_group_name" {
  description = "The resource group of everything here, which has to exist."
  type        = string
}

variable "location" {
  description = "The region, as westeurope."
  type        = string
}

variable "sku" {
  description = "Basic has no scheduled messages, which companions are."
  type        = string
  default     = "Standard"
  validation {
    condition     = contains(["Standard", "Premium"], var.sku)
    error_message = "The sku is Standard or Premium."
  }
}

variable "queues" {
  description = "The queues whose deadlines are watched."
  type        = list(string)
  default     = ["orders"]
}

variable "monitor_queue" {
  description = "The setting monitorQueue."
  type        = string
  default     = "overdue-monitor"
}

variable "monitor_queues" {
  description = "The setting monitorQueues. When you lower it, Terraform deletes the queues that are left over: wait until they are empty."
  type        = number
  default     = 1
  validation {
    condition     = contains(range(1, 17), var.monitor_queues)
    error_message = "There are 1 to 16 monitor queues."
  }
}

variable "manage" {
  description = "Whether Overdue may read how the queues were made, for which Service Bus wants the Manage right. Without it the configuration has to say so: docs/operate/rights.md."
  type        = bool
  default     = false
}
