# SPDX-License-Identifier: Apache-2.0

output "namespace" {
  description = "For namespace of the configuration and of the chart."
  value       = "${azurerm_servicebus_namespace.this.name}.servicebus.windows.net"
}

output "app_identity" {
  value = azurerm_user_assigned_identity.app.id
}

output "app_client_id" {
  description = "For the service account of the apps."
  value       = azurerm_user_assigned_identity.app.client_id
}

output "monitor_identity" {
  value = azurerm_user_assigned_identity.monitor.id
}

output "monitor_client_id" {
  description = "For workloadIdentity.clientId of the chart."
  value       = azurerm_user_assigned_identity.monitor.client_id
}
