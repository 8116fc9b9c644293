# SPDX-License-Identifier: Apache-2.0
# A namespace of Service Bus with work queues, the monitor queue, and an identity for each side with the rights that it needs and
# no more: docs/operate/rights.md says which command needs which. It is what deploy/bicep/main.bicep makes.

terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
  }
}

locals {
  sender   = "Azure Service Bus Data Sender"
  receiver = "Azure Service Bus Data Receiver"
  owner    = "Azure Service Bus Data Owner" # Manage

  monitor_queues = toset([for n in range(1, var.monitor_queues + 1) : n == 1 ? var.monitor_queue : "${var.monitor_queue}.${n}"])
  both           = { for pair in setproduct(local.monitor_queues, [local.sender, local.receiver]) : join(" ", pair) => pair }
}

resource "azurerm_servicebus_namespace" "this" {
  name                         = var.namespace_name
  resource_group_name          = var.resource_group_name
  location                     = var.location
  sku                          = var.sku
  capacity                     = var.sku == "Premium" ? 1 : 0
  premium_messaging_partitions = var.sku == "Premium" ? 1 : 0
  local_auth_enabled           = false # identities alone, no connection strings
  minimum_tls_version          = "1.2"
}

resource "azurerm_servicebus_queue" "work" {
  for_each                             = toset(var.queues)
  name                                 = each.key
  namespace_id                         = azurerm_servicebus_namespace.this.id
  dead_lettering_on_message_expiration = true # else what expires is dropped
  default_message_ttl                  = "P14D"
  lock_duration                        = "PT1M"
  max_delivery_count                   = 10
}

# No sessions, no partitions, no duplicate detection, no time to live: `overdue doctor` checks it.
resource "azurerm_servicebus_queue" "companions" {
  for_each                     = local.monitor_queues
  name                         = each.key
  namespace_id                 = azurerm_servicebus_namespace.this.id
  lock_duration                = "PT10S" # how long the companions of a monitor that was killed wait for the next one
  max_delivery_count           = 2000
  requires_session             = false
  requires_duplicate_detection = false
}

# The apps with their sidecars, `overdue proxy`: they have one identity.
resource "azurerm_user_assigned_identity" "app" {
  name                = "${var.namespace_name}-app"
  resource_group_name = var.resource_group_name
  location            = var.location
}

# `overdue monitor`.
resource "azurerm_user_assigned_identity" "monitor" {
  name                = "${var.namespace_name}-monitor"
  resource_group_name = var.resource_group_name
  location            = var.location
}

# The monitor queues: both sides write companions; the monitor receives them, a proxy measures the clock and cancels what is met.
resource "azurerm_role_assignment" "app_on_monitor_queue" {
  for_each             = local.both
  scope                = azurerm_servicebus_queue.companions[each.value[0]].id
  role_definition_name = each.value[1]
  principal_id         = azurerm_user_assigned_identity.app.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_role_assignment" "monitor_on_monitor_queue" {
  for_each             = local.both
  scope                = azurerm_servicebus_queue.companions[each.value[0]].id
  role_definition_name = each.value[1]
  principal_id         = azurerm_user_assigned_identity.monitor.principal_id
  principal_type       = "ServicePrincipal"
}

# The work queues: the app sends and receives, as it does without Overdue; the monitor looks and expires. Their settings are shown
# to whoever may manage them.
resource "azurerm_role_assignment" "app_sends" {
  for_each             = azurerm_servicebus_queue.work
  scope                = each.value.id
  role_definition_name = var.manage ? local.owner : local.sender
  principal_id         = azurerm_user_assigned_identity.app.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_role_assignment" "app_receives" {
  for_each             = azurerm_servicebus_queue.work
  scope                = each.value.id
  role_definition_name = local.receiver
  principal_id         = azurerm_user_assigned_identity.app.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_role_assignment" "monitor_looks" {
  for_each             = azurerm_servicebus_queue.work
  scope                = each.value.id
  role_definition_name = var.manage ? local.owner : local.receiver
  principal_id         = azurerm_user_assigned_identity.monitor.principal_id
  principal_type       = "ServicePrincipal"
}
